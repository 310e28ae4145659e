"""Extraction gives what the teacher says, whatever the batch size and the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.devices import batch_rows
from preceptor.zoo import Preprocessing, Teacher, extract
from tests.zoo.conftest import CLASSES, make_task


def expected(teacher: Teacher, images: torch.Tensor) -> Any:
    return teacher.outputs(teacher.preprocessing.apply(images))


@pytest.mark.parametrize("batch_size", [None, 1, 3, 20, 100])
@pytest.mark.parametrize("cache", [True, False])
def test_features_logits_and_labels(teacher: Teacher, batch_size: int | None, cache: bool) -> None:
    task = make_task()
    came = extract(teacher, task.train, batch_size=batch_size, cache=cache)
    want = expected(teacher, task.train.load(np.arange(20)))
    np.testing.assert_allclose(came.features, want.features.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(came.logits, want.logits.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(came.labels, task.train.labels)
    assert isinstance(came.features, np.memmap) == cache


def test_images_of_many_sizes(teacher: Teacher, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(4):
            size = (*generator.integers(17, 40, 2), 3)
            Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).save(
                tmp_path / "data" / name / f"{number}.png"
            )
    task = Task(tmp_path / "data")
    came = extract(teacher, task.train, batch_size=2)
    for row in range(len(task.train)):
        want = expected(teacher, task.train.load([row]))
        np.testing.assert_allclose(came.features[row], want.features[0].numpy(), rtol=1e-4, atol=1e-5)


def test_a_teacher_out_of_a_network_at_hand() -> None:
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    )
    teacher = Teacher.from_module(
        net, name="mine", classes=CLASSES, preprocessing=Preprocessing.for_size((3, 2, 2))
    )
    inputs = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(teacher.features(inputs), net[:3](inputs).detach())
    torch.testing.assert_close(teacher.bias, net[3].bias.detach())
    task = make_task()
    assert extract(teacher, task.train).features.shape == (20, 5)
    with pytest.raises(PreceptorError, match="says 2 classes"):
        Teacher.from_module(
            net, name="m", classes=("a", "b"), preprocessing=Preprocessing.for_size((3, 2, 2))
        )


def test_the_batch_is_halved_until_memory_suffices(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    task, tried = make_task(), []
    want = extract(teacher, task.train, cache=False)
    original = Teacher.outputs

    def scarce(self: Teacher, inputs: torch.Tensor, maps: bool = True) -> Any:
        tried.append(len(inputs))
        if len(inputs) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(self, inputs, maps)

    monkeypatch.setattr(Teacher, "outputs", scarce)
    came = extract(teacher, task.train, cache=False)
    np.testing.assert_allclose(came.features, want.features, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(came.labels, want.labels)
    assert max(tried) == 20
    with pytest.raises(PreceptorError, match="memory does not suffice for teacher 'a' with a batch of 10"):
        extract(teacher, task.train, batch_size=10, cache=False)

    def other(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something else is broken")

    monkeypatch.setattr(Teacher, "outputs", other)
    with pytest.raises(RuntimeError, match="something else"):
        extract(teacher, task.train, cache=False)


@pytest.mark.parametrize(
    ("shape", "kind", "rows"),
    [
        ((3, 224, 224), "cpu", 6),
        ((3, 224, 224), "cuda", 111),
        ((3, 32, 32), "cuda", 1024),
        ((3, 4096, 4096), "cpu", 1),
    ],
)
def test_rows_of_a_batch_by_input_size_and_device(shape: tuple[int, ...], kind: str, rows: int) -> None:
    assert batch_rows(shape, torch.device(kind)) == rows


def test_features_that_are_not_finite_are_refused(teacher: Teacher) -> None:
    teacher.network.network.classifier.bias[0] = torch.nan
    with pytest.raises(
        PreceptorError, match="teacher 'a' gives numbers that are not finite for sample number 0"
    ):
        extract(teacher, make_task().train, cache=False)


def test_wrong_calls(teacher: Teacher) -> None:
    task = make_task()
    with pytest.raises(PreceptorError, match="device 'gpu' is unknown; expected auto, cpu"):
        extract(teacher, task.train, device="gpu")
    with pytest.raises(PreceptorError, match="a batch size of 0"):
        extract(teacher, task.train, batch_size=0)
    with pytest.raises(PreceptorError, match="no samples"):
        extract(teacher, task.train.select([]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_gpu(teacher: Teacher) -> None:
    task = make_task()
    exact = extract(teacher, task.train, cache=False)
    came = extract(teacher, task.train, device="cuda", cache=False)
    np.testing.assert_allclose(came.features, exact.features, atol=5e-3 * np.abs(exact.features).max())
