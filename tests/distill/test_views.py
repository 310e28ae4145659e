"""A teacher of larger images than the student's sees the same view as it does, with the detail that it knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.distill.inputs import InputSpec, view_side
from preceptor.distill.result import Result
from preceptor.distill.train import train
from tests.distill.plain import Plain, Spy
from tests.distill.toys import vector_task

CLASSES = ("a", "b", "c", "d")
MEAN, STD = 0.25, 0.5  # of the teacher


def pictures(side: int = 16, count: int = 24) -> Task:
    """Noise: whatever is shrunk on the way differs everywhere."""
    values = np.random.default_rng(0)
    images = values.integers(0, 256, (count, 1, side, side), dtype=np.uint8)
    labels = np.arange(count) % len(CLASSES)
    return Task.from_arrays(images, labels, images, labels, CLASSES, name="noise")


def teacher(side: int = 16) -> tuple[Spy, Result]:
    spy = Spy(side * side)
    config = {"input_shape": [1, side, side], "mean": [MEAN], "std": [STD], "classes": list("wxyz")}
    return spy, Result(spy, 0.5, {}, [], [], config)


def distilled(task: Task, given: Result, student: Plain, **options: object) -> Result:
    settings = {"method": "sinkhorn", "epochs": 1, "batch_size": 24, "image_size": 8, "augment": "none"}
    return train(task, student=student, teacher=given, **{**settings, **options})  # type: ignore[arg-type]


def shown(spy: Spy) -> Tensor:
    """The last batch in [0, 1]."""
    return spy.seen[-1] * STD + MEAN


def test_the_teacher_sees_the_images_as_they_are_and_the_student_the_same_ones_shrunk() -> None:
    task, student = pictures(), Spy(64)
    spy, given = teacher()
    result = distilled(task, given, student)
    whole = task.train.load(slice(None))
    assert isinstance(whole, Tensor)
    clean = next(
        seen for seen in spy.seen if len(seen) == 24
    )  # over the training set, which gives classes their centres
    torch.testing.assert_close(clean * STD + MEAN, whole / 255, rtol=1e-4, atol=1e-5)
    ordered = shown(spy).flatten(1).sum(1).sort().values
    torch.testing.assert_close(ordered, (whole / 255).flatten(1).sum(1).sort().values, rtol=1e-4, atol=1e-3)
    own = next(seen for seen in student.seen if len(seen) == 24)  # of the training
    assert own.shape[1:] == (1, 8, 8)
    shrunk = F.interpolate(shown(spy), (8, 8), mode="bilinear", antialias=True)
    torch.testing.assert_close(
        own * result.config["std"][0] + result.config["mean"][0], shrunk, rtol=1e-4, atol=1e-4
    )
    assert (result.config["input_shape"], result.config["view"]) == ([1, 8, 8], 16)


def test_crops_and_mixed_images_are_the_same_for_both() -> None:
    student = Spy(64)
    spy, given = teacher()
    result = distilled(pictures(), given, student, augment="pad-crop-flip", mixup=1.0)
    own = (
        next(seen for seen in student.seen if len(seen) == 24) * result.config["std"][0]
        + result.config["mean"][0]
    )
    torch.testing.assert_close(
        own, F.interpolate(shown(spy), (8, 8), mode="bilinear", antialias=True), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("images", "teachers", "view"), [(16, 16, 16), (16, 12, 12), (12, 32, 12), (16, 4, 8)]
)
def test_the_view_has_what_the_teacher_can_use_and_the_files_have(
    images: int, teachers: int, view: int
) -> None:
    _, given = teacher(teachers)
    result = distilled(pictures(images), given, Plain(64))
    assert result.config.get("view", 8) == view


def test_images_of_several_sizes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name, (width, height) in {"a": (10, 30), "b": (20, 40)}.items():
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("L", (width, height), 128).save(tmp_path / part / name / "1.png")
    train_split, spec = Task(tmp_path).train, InputSpec((1, 8, 8), (0.0,), (1.0,))
    assert [view_side(train_split, spec, wanted) for wanted in (0, 8, 15, 64)] == [8, 8, 15, 20]


def test_a_plain_student_and_vectors_have_no_view_of_their_own() -> None:
    alone = train(pictures(), student=Plain(64), epochs=1, image_size=8)
    assert "view" not in alone.config
    vectors = train(
        vector_task(), student="mlp-4", method="kd", teacher=Plain(), teacher_classes="abcd", epochs=1
    )
    assert "view" not in vectors.config


def test_a_run_is_not_resumed_with_another_view(tmp_path: Path) -> None:
    distilled(pictures(), teacher()[1], Plain(64), out=tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"view": 16', '"view": 12'))
    with pytest.raises(
        PreceptorError, match=r"begun with images of another size for the teacher, .*; train anew"
    ):
        distilled(pictures(), teacher()[1], Plain(64), out=tmp_path / "run", resume=True)
