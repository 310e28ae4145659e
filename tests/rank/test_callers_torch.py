"""A ranking takes any name of a device, and leaves alone what the caller has set in torch."""

import pytest
import torch

from preceptor.data import Task
from preceptor.rank import Student, rank
from preceptor.rank.memory import needed_bytes
from tests.rank import teachers
from tests.torch_defaults import UNUSUAL, unusual

STUDENT = Student("mlp-4", "quick")


@pytest.fixture
def scores(zoo, task):
    """Under torch's own defaults."""
    return [
        (row.name, row.scores)
        for row in rank(zoo, task, "all", teachers=["same", "random"], device="cpu").rows
    ]


@pytest.fixture(params=UNUSUAL)
def _unusual(request, scores):
    with unusual(request.param):
        yield


@pytest.mark.usefixtures("_unusual")
def test_defaults_of_the_caller_change_nothing(zoo, task, scores, tmp_path):
    ranking = rank(zoo, task, "all", teachers=["same", "random"], device="cpu", cache=str(tmp_path / "other"))
    assert [(row.name, row.scores) for row in ranking.rows] == scores


def test_auto_is_a_device_that_is_there_and_the_default(zoo, task, scores, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for asked in ({}, {"device": "auto"}, {"device": "cpu"}):
        ranking = rank(zoo, task, "all", teachers=["same", "random"], **asked)
        assert ranking.evidence["device"] == "cpu"
        assert [(row.name, row.scores) for row in ranking.rows] == scores


def test_random_numbers_of_the_caller_are_left_alone(zoo):
    task: Task = teachers.digits_task(samples=60)
    before = torch.get_rng_state()
    metrics = ["bridge", "sinkhorn", "sinkhorn-single", "sinkhorn-exact"]
    ranking = rank(zoo, task, metrics, teachers="same", student=STUDENT, notify=lambda text: None)
    assert set(ranking["same"].scores) == set(metrics)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_batch_of_the_device_is_what_memory_is_needed_for(zoo):
    card = zoo.card("same")
    large = card.model_copy(
        update={"preprocessing": card.preprocessing.model_copy(update={"input_size": (3, 224, 224)})}
    )
    cpu, cuda = (needed_bytes(large, 1000, torch.device(kind)) for kind in ("cpu", "cuda"))
    assert cuda - cpu == (111 - 6) * 3 * 224 * 224 * 4 * 24
