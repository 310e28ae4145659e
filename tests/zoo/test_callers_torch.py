"""What the caller has set in torch (defaults, random numbers) neither breaks the zoo nor is changed by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from preceptor.data import Task
from preceptor.zoo import Teacher, Zoo, extract
from tests.zoo.conftest import make_task

SMALL = "glyphs:digits?per_class=4&test_per_class=2"


@pytest.fixture(params=["meta", "float64"])
def _unusual(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "meta":
        torch.set_default_device("meta")
    else:
        torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def expected(teacher: Teacher) -> np.ndarray:
    """Computed under torch's own defaults: fixtures in a signature are made in its order."""
    return extract(teacher, make_task().train, cache=False).features


@pytest.mark.usefixtures("expected", "_unusual")
def test_adding_loading_and_extracting(zoo: Zoo, run: Path, expected: np.ndarray) -> None:
    task = make_task()
    zoo.add(f"run:{run}", name="b", centers_from=task)
    zoo.add(f"run:{run}", name="c", centers=np.ones((3, 16)))
    assert zoo.verify("b") == []
    teacher = zoo.load("b")
    assert {(p.device.type, p.dtype) for p in teacher.parameters()} == {("cpu", torch.float32)}
    np.testing.assert_array_equal(extract(teacher, task.train, cache=False).features, expected)
    inputs = teacher.preprocessing.apply(task.train.load(slice(None)))
    assert (inputs.device.type, inputs.dtype) == ("cpu", torch.float32)
    np.testing.assert_allclose(teacher.features(inputs).numpy(), expected, rtol=1e-4, atol=1e-5)


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


def drawing() -> torch.nn.Module:
    """A factory that draws new weights at each call."""
    from preceptor.zoo import Preprocessing

    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    network.classes = ("ant", "bee", "cat")  # type: ignore[assignment]
    network.preprocessing = Preprocessing.for_size((3, 2, 2))  # type: ignore[assignment]
    return network
