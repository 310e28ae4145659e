"""What the teacher sees, and when its outputs may be kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.losses import Method, Step
from preceptor.distill.losses.method import task_loss
from preceptor.distill.result import Result
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.plain import Plain, Spy, assert_same_weights
from tests.distill.toys import toy_task, vector_task


def test_the_teacher_sees_the_students_view_through_its_own_preprocessing() -> None:
    views: list[Tensor] = []

    class Watch(Method):
        name, reference, needs = "watch", "a test", frozenset({"teacher"})

        def terms(self, step: Step) -> dict[str, Tensor]:
            views.append(step.images)
            return {"task": task_loss(step)}

    config = {"input_shape": [1, 8, 8], "mean": [0.25], "std": [0.5], "classes": list("wxyz")}
    spy = Spy(64)
    teacher = Result(spy, 0.5, {}, [], [], config)
    task = toy_task()
    result = train(task, student=Plain(64), method=Watch, teacher=teacher, epochs=1, augment="pad-crop-flip")
    mean, std = result.config["mean"][0], result.config["std"][0]
    for theirs, own in zip(spy.seen[-len(views) :], views, strict=True):
        torch.testing.assert_close(theirs * 0.5 + 0.25, own * std + mean, rtol=1e-4, atol=1e-5)


def test_cached_teacher_trains_the_same_student() -> None:
    settings = {"student": "mlp-4", "method": "kd", "epochs": 2, "teacher_classes": "abcd"}
    live = train(vector_task(), teacher=Plain(), **settings)
    spy = Spy()
    cached = train(vector_task(), teacher=spy, cache_teacher=True, **settings)
    assert_same_weights(live.model, cached.model, rtol=1e-4, atol=1e-5)
    assert sum(map(len, spy.seen)) == 96 + 2  # once a sample, and a dry batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": "pad-crop-flip"}, "cannot be cached: augment pad-crop-flip shows a sample differently"),
        ({"mixup": 0.2}, "cannot be cached: mixup"),
        ({"method": "fitnet"}, "cannot be cached: method fitnet reads feature maps"),
        (
            {"method": "sskd", "teacher_classes": list("abcd")},
            "cannot be cached: method sskd makes further views",
        ),
    ],
)
def test_what_may_not_be_cached(options: dict[str, object], message: str) -> None:
    teacher = build("cnn-4", 4, (1, 8, 8), seed=5)
    options = {"method": "sinkhorn", "epochs": 1, **options}
    with pytest.raises(PreceptorError, match=message):
        train(toy_task(), student="cnn-2", teacher=teacher, cache_teacher=True, **options)
