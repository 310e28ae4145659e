"""Scores of a `python:` teacher, however they are kept, are not given once its code does something else."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest

from preceptor.rank import rank
from preceptor.rank.assess import Plan, Trial
from preceptor.rank.students import Student, student_logits

MODULE = """
import torch
from torch import nn
from preceptor.zoo import Preprocessing

def make():
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 3))
    net.classes, net.preprocessing = ["a", "b", "c"], Preprocessing.for_size([64])
    return net
"""
REFUSED = r"python:ranked_module:make no longer makes the network that was added as 'own'"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the user's module, and forgets it as a fresh process would not know it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def file(activation: str) -> None:
        (tmp_path / "ranked_module.py").write_text(MODULE.replace("ReLU", activation))
        sys.modules.pop("ranked_module", None)
        importlib.invalidate_caches()

    return file


@pytest.fixture
def own(own_zoo, write):
    write("ReLU")
    own_zoo.add("python:ranked_module:make", name="own", trust_code=True)
    return own_zoo


def ranked(zoo, task, metric="sinkhorn", **more):
    return rank(zoo, task, [metric], teachers=["same", "own"], trust_code=True, **more)


# The same metric lies in the journal, another one finds the features in the cache.
@pytest.mark.parametrize("metric", ["sinkhorn", "leep"])
def test_a_kept_score_is_not_given_for_changed_code(own, task, write, metric):
    assert ranked(own, task)["own"].rank is not None
    write("Sigmoid")
    row = ranked(own, task, metric)["own"]
    assert row.rank is None
    assert row.reasons["teacher"].startswith(REFUSED)
    write("ReLU")
    assert ranked(own, task, metric)["own"].rank is not None


def test_a_kept_trial_is_not_given_for_changed_code(own, task, own_cache, write):
    trial = Trial(own, task, Plan(metrics=("leep",), cache=str(own_cache), trust_code=True))
    assert "leep" in trial("own").scores
    write("Sigmoid")
    assert trial("own").reasons["teacher"].startswith(REFUSED)
    untrusted = replace(trial, plan=replace(trial.plan, trust_code=False))
    assert "say --trust-code" in untrusted("own").reasons["teacher"]


def test_code_that_did_not_change_costs_no_pass_over_the_task(own, task, monkeypatch):
    first = ranked(own, task)
    monkeypatch.setattr("preceptor.zoo.features._Pass", None)
    assert ranked(own, task).rows == first.rows
    assert "leep" in ranked(own, task, "leep")["own"].scores


def test_a_teacher_added_again_has_the_scores_of_its_code(own, task, write, tmp_path):
    before = ranked(own, task)["own"].scores
    write("Sigmoid")
    own.remove("own")
    own.add("python:ranked_module:make", name="own", trust_code=True)
    after = ranked(own, task)["own"].scores
    assert after == ranked(own, task, cache=str(tmp_path / "empty"))["own"].scores
    assert after != before


def test_a_student_of_other_code_with_the_same_weights_is_another_student(
    own, task, own_cache, write, monkeypatch
):
    trained = []

    def train(task, student, folder, device, seed, teacher):
        trained.append(teacher)
        return np.zeros((1, 1))

    monkeypatch.setattr("preceptor.rank.students._train", train)

    def ask():
        teacher = own.load("own", trust_code=True)
        student_logits(task, Student("mlp-4"), cache=str(own_cache), device="cpu", seed=0, teacher=teacher)

    ask()
    ask()
    assert len(trained) == 1
    write("Sigmoid")
    own.remove("own")
    own.add("python:ranked_module:make", name="own", trust_code=True)
    ask()
    assert len(trained) == 2


PARSING = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--needed", required=True)
parser.parse_args()
"""


def test_code_that_would_end_the_program_stops_no_other_teacher(own, task, write, tmp_path):
    write("ReLU")
    module = tmp_path / "ranked_module.py"
    module.write_text(PARSING + module.read_text())
    found = ranked(own, task)
    assert found["same"].rank == 1
    assert (
        found["own"]
        .reasons["teacher"]
        .startswith("python:ranked_module:make would end the program: SystemExit: 2")
    )
