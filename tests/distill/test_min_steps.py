"""A small data set is gone through more often, so that a training has its fewest steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data.unlabelled import beside
from preceptor.distill.recipe import RECIPES, lengthened, resolve_recipe
from preceptor.distill.train import train
from preceptor.pipeline.alone import plain_attempts
from tests.distill.toys import toy_task

CALL = {"student": "cnn-2", "device": "cpu", "progress": False, "batch_size": 16}


@pytest.mark.parametrize("samples", [1, 16, 17, 40, 1000])
@pytest.mark.parametrize("asked", [0, 1, 50, 333])
def test_as_many_epochs_as_the_fewest_steps_take_and_no_more(samples: int, asked: int) -> None:
    recipe = resolve_recipe("quick", {"batch_size": 16, "min_steps": asked})
    epochs, steps = lengthened(recipe, samples).epochs, math.ceil(samples / 16)
    assert epochs >= recipe.epochs
    assert epochs * steps >= asked
    assert epochs == recipe.epochs or (epochs - 1) * steps < asked


def test_whoever_names_the_epochs_gets_that_many() -> None:
    assert RECIPES["patient"].min_steps > 0
    assert resolve_recipe("patient", {"epochs": 3}).min_steps == 0
    assert resolve_recipe("patient", {"epochs": 3, "min_steps": 9}).min_steps == 9
    assert resolve_recipe("patient", {"lr": 0.1}).min_steps == RECIPES["patient"].min_steps


def test_a_lengthened_training_is_one_of_so_many_epochs(tmp_path: Path) -> None:
    task = toy_task(train=40)  # three steps an epoch
    result = train(task, recipe="quick", min_steps=35, out=tmp_path / "r", **CALL)
    assert len(result.history) == 12
    assert "12 epochs instead of 10, so that there are 35 steps (min_steps)" in result.notes
    named = train(task, recipe="quick", epochs=12, **CALL)
    torch.testing.assert_close(result.model.state_dict(), named.model.state_dict(), rtol=0, atol=0)
    assert not named.notes
    recipe = json.loads((tmp_path / "r" / "config.json").read_text())["recipe"]
    assert (recipe["epochs"], recipe["min_steps"]) == (12, 35)
    again = train(task, recipe="quick", min_steps=35, out=tmp_path / "r", resume=True, **CALL)
    assert again.accuracy == result.accuracy
    with pytest.raises(PreceptorError, match=r"recipe.epochs was 12 and is 20"):
        train(task, recipe="quick", min_steps=60, out=tmp_path / "r", resume=True, **CALL)


def test_samples_that_are_held_out_make_no_steps() -> None:
    task = toy_task(train=40)
    result = train(task, recipe="quick", min_steps=35, patience=99, validation_fraction=0.3, **CALL)
    assert len(result.history) == 18  # of 28 samples, two steps an epoch


def test_the_baseline_beside_unlabelled_samples_has_as_many_steps(tmp_path: Path) -> None:
    task, more = toy_task(train=20), toy_task(train=60, seed=3)
    teacher = train(task, recipe="quick", **CALL)
    guide = {"method": "kd", "teacher": teacher, "unlabelled": more, "with_baseline": True}
    for name, recipe in (("short", {"epochs": 1, "min_steps": 80}), ("long", {"epochs": 9, "min_steps": 4})):
        call = {**CALL, "batch_size": 5}  # of 20 and of 120 samples, 4 and 24 steps an epoch
        result = train(task, recipe="quick", out=tmp_path / name, **recipe, **guide, **call)
        plain = json.loads((tmp_path / name / "baseline" / "config.json").read_text())["recipe"]
        assert len(result.history) * 24 >= recipe["min_steps"]
        assert plain["epochs"] * 4 == len(result.history) * 24


@pytest.mark.parametrize(("few", "many"), [(20, 60), (20, 200), (65, 640), (160, 2000)])
def test_so_has_the_plain_student_of_a_run(few: int, many: int) -> None:
    """Also where a batch is not full: steps are counted, not samples."""
    labelled, more = toy_task(train=few).train, toy_task(train=many, seed=3).train
    seen = len(beside(labelled, more))

    def steps(recipe: str, asked: dict[str, Any], samples: int) -> int:
        return lengthened(resolve_recipe(recipe, asked), samples).epochs * math.ceil(samples / 64)

    for attempt in plain_attempts(labelled, "patient", {"batch_size": 64}, more, {}, "flip"):
        asked = dict(attempt.options)
        name = asked.pop("recipe")
        taught = steps(name, {"batch_size": 64}, seen)
        assert abs(steps(name, asked, few) - taught) <= max(math.ceil(few / 64), math.ceil(seen / 64))
