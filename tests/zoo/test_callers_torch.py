"""What the caller has set in torch (defaults, random numbers) neither breaks the zoo nor is changed by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preceptor.data import Task
from preceptor.zoo import Preprocessing, Zoo, extract
from tests.torch_defaults import UNUSUAL, unusual
from tests.zoo.conftest import CLASSES, make_task

SMALL = "glyphs:digits?per_class=4&test_per_class=2"


@pytest.fixture(params=UNUSUAL)
def _unusual(request: pytest.FixtureRequest) -> Iterator[None]:
    with unusual(request.param):
        yield


SOURCES = {
    "timm": {"source": "timm:test_resnet", "untrained": True, "classes": CLASSES},
    "own": {"source": "python:tests.zoo.test_callers_torch:drawing", "trust_code": True},
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, zoo: Zoo) -> dict[str, Any]:
    """A teacher that was added under torch's own defaults; fixtures in a signature are made in its order."""
    zoo.add(name="a", **SOURCES[request.param])
    return SOURCES[request.param]


@pytest.fixture
def expected(source: dict[str, Any], zoo: Zoo) -> np.ndarray:
    return extract(zoo.load("a", trust_code=True), make_task().train, cache=False).features


@pytest.mark.usefixtures("expected", "_unusual")
def test_adding_loading_and_extracting(zoo: Zoo, source: dict[str, Any], expected: np.ndarray) -> None:
    task = make_task()
    zoo.add(name="b", **source, centers_from=task)
    zoo.add(name="c", **source, centers=np.ones((3, zoo.card("a").feature_size)))
    assert [zoo.verify(name, trust_code=True) for name in "abc"] == [[]] * 3
    teacher = zoo.load("a", trust_code=True)
    assert {(p.device.type, p.dtype) for p in teacher.parameters()} == {("cpu", torch.float32)}
    np.testing.assert_array_equal(extract(teacher, task.train, cache=False).features, expected)
    inputs = teacher.preprocessing.apply(task.train.load(slice(None)))
    assert (inputs.device.type, inputs.dtype) == ("cpu", torch.float32)


@pytest.fixture(scope="module")
def glyphs() -> str:
    return Task(SMALL).fingerprint


@pytest.mark.usefixtures("glyphs", "_unusual")
def test_a_task_of_glyphs(glyphs: str) -> None:
    assert Task(SMALL).fingerprint == glyphs


def test_random_numbers_of_the_caller_are_left_alone(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    zoo.add("python:tests.zoo.test_callers_torch:drawing", name="own", trust_code=True)
    before = torch.get_rng_state()
    for name in ("a", "own"):
        extract(zoo.load(name, trust_code=True), make_task().train)
        zoo.verify(name, trust_code=True)
    assert torch.equal(torch.get_rng_state(), before)


class Drawing(torch.nn.Module):
    """Makes a tensor in its forward pass, as many networks do, without saying where."""

    classes = CLASSES
    preprocessing = Preprocessing.for_size((3, 2, 2))

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(12, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(inputs.flatten(1) + torch.ones(12))


def drawing() -> torch.nn.Module:
    """A factory that draws new weights at each call."""
    return Drawing()
