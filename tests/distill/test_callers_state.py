"""What belongs to the caller and comes back untouched: random numbers, torch's defaults, the modes of a module."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from preceptor.distill import distill, load_run, predict
from preceptor.distill.export import export
from preceptor.distill.saved_run import split_probabilities
from preceptor.distill.train import train
from preceptor.models import build
from preceptor.rank.students import Student, costs
from tests.distill.plain import Plain
from tests.distill.toys import toy_task, vector_task
from tests.torch_defaults import UNUSUAL, unusual

Calls = dict[str, Callable[[Path], object]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("callers")
    train(toy_task(), student="cnn-4", epochs=1, out=folder / "run")
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(folder / "a.png")
    return folder


def _teacher() -> nn.Module:
    return build("cnn-2", 4, (1, 8, 8), seed=0)


CALLS: Calls = {
    "build with a seed": lambda place: build("cnn-4", 4, (1, 8, 8), seed=3),
    "load_run": lambda place: load_run(place / "run"),
    "predict": lambda place: predict(place / "run", [place / "a.png"]),
    "split_probabilities": lambda place: split_probabilities(place / "run", toy_task().test),
    "export": lambda place: export(place / "run", place / "a.onnx"),
    "costs of students": lambda place: costs(("sinkhorn-single",), Student("cnn-2"), toy_task(), 1),
    "train": lambda place: train(toy_task(), student="cnn-2", epochs=1),
    "distill": lambda place: distill("cnn-2", toy_task(), _teacher(), epochs=1),
    "distill by a schedule": lambda place: distill("cnn-2", toy_task(), _teacher(), "sftn", epochs=1),
}


@pytest.mark.parametrize("call", CALLS)
def test_random_numbers_go_on_as_they_would_have(call: str, place: Path) -> None:
    if call == "export":
        pytest.importorskip("onnxruntime")
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    CALLS[call](place)
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_without_a_seed_weights_differ_each_time() -> None:
    one, other = (build("mlp-4", 3, (5,)).classifier.weight for _ in range(2))
    assert not torch.equal(one, other)


def test_without_a_seed_weights_come_from_torchs_generator() -> None:
    weights = []
    with torch.random.fork_rng(devices=[]):
        for seed in (5, 5, 6):
            torch.manual_seed(seed)
            weights.append(build("mlp-4", 3, (5,)).classifier.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.fixture(params=UNUSUAL)
def _unusual(request: pytest.FixtureRequest, place: Path) -> Iterator[None]:
    with unusual(request.param):
        yield


@pytest.mark.usefixtures("_unusual")
@pytest.mark.parametrize("call", [name for name in CALLS if name != "distill by a schedule"])
def test_defaults_of_torch_change_nothing(call: str, place: Path) -> None:
    if call == "export":
        pytest.importorskip("onnxruntime")
    found = CALLS[call](place)
    network = (
        found if isinstance(found, nn.Module) else getattr(found, "model", getattr(found, "network", None))
    )
    for value in () if network is None else network.parameters():
        assert (value.device.type, value.dtype) == ("cpu", torch.float32)


def test_a_teacher_of_ones_own_keeps_its_modes() -> None:
    teacher = Plain()
    teacher.hidden.eval()
    train(vector_task(), student="mlp-4", method="sinkhorn", teacher=teacher, epochs=1)
    assert (teacher.training, teacher.hidden.training, teacher.classifier.training) == (True, False, True)
