from __future__ import annotations

import pytest
import torch

from preceptor.distill.result import Result
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.toys import toy_task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
SETTINGS = {"student": "cnn-8", "epochs": 6, "batch_size": 16, "device": "cuda", "precision": "32-true"}


@pytest.mark.parametrize("method", ["none", "rkd"])
def test_a_graph_trains_what_plain_steps_train(method: str) -> None:
    teacher = None if method == "none" else build("cnn-8", 4, (1, 8, 8), seed=5)
    plain, graphed = (
        train(toy_task(train=102), method=method, teacher=teacher, graphs=graphs, ema=0.9, **SETTINGS)
        for graphs in (False, True)
    )
    losses = [[record["loss"] for record in result.history] for result in (plain, graphed)]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-2, atol=1e-3)


def test_a_weight_follows_progress_through_a_graph() -> None:
    teacher = build("cnn-8", 3, (1, 8, 8), seed=5)
    plain, graphed = (
        train(
            toy_task(), method="sinkhorn", teacher=teacher, schedule="linear-decay", graphs=graphs, **SETTINGS
        )
        for graphs in (False, True)
    )
    terms = [[record["terms"]["sinkhorn"] for record in result.history] for result in (plain, graphed)]
    torch.testing.assert_close(torch.tensor(terms[1]), torch.tensor(terms[0]), rtol=2e-2, atol=2e-3)


def test_a_graph_holds_a_view_that_is_larger_than_the_students_images() -> None:
    seen = {"input_shape": [1, 16, 16], "mean": [0.5], "std": [0.25], "classes": list("wxyz")}
    teacher = Result(build("cnn-8", 4, (1, 16, 16), seed=5), 0.5, {}, [], [], seen)
    plain, graphed = (
        train(toy_task(size=16), method="sinkhorn", teacher=teacher, image_size=8, graphs=graphs, **SETTINGS)
        for graphs in (False, True)
    )
    assert graphed.config["view"] == 16
    losses = [[record["loss"] for record in result.history] for result in (plain, graphed)]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-2, atol=1e-3)


def test_bfloat16_learns() -> None:
    result = train(toy_task(), **{**SETTINGS, "precision": "bf16-mixed", "epochs": 20})
    assert result.accuracy > 0.8
    assert result.config["recipe"]["precision"] == "bf16-mixed"


def test_half_precision_scales_its_loss() -> None:
    result = train(toy_task(), **{**SETTINGS, "precision": "16-mixed", "clip": 1.0, "epochs": 20})
    assert result.accuracy > 0.8
