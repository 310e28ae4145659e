"""The students of a run: with which recipe, and the one without a teacher that the others are held against."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preceptor.core import PreceptorError
from preceptor.data import Split, Task
from preceptor.data.unlabelled import epochs_alone, overlaps, without
from preceptor.distill.losses import Method
from preceptor.distill.recipe import RECIPE_FIELDS, resolve_recipe
from preceptor.distill.result import Result
from preceptor.distill.train import extra_samples, train

FEW = 100  # images a class
PLAIN = "plain"
SHORT, PATIENT = "small", "patient"  # recipes


@dataclass(frozen=True)
class Trial:
    """One student of a run: the teacher it had, and how it did on validation data."""

    teacher: str | None  # None: the plain student
    validation_accuracy: float
    path: Path
    result: Result


def choose_recipe(recipe: Any, task: Task, options: Mapping[str, Any]) -> tuple[list[str], Any]:
    """The recipe as asked for, or by the number of labels; and what there is to say about the choice."""
    if recipe is not None:
        return [], recipe
    each = len(task.train) // len(task.classes)
    if each >= FEW or {"epochs", "mixup"} & options.keys():
        return [], SHORT
    return [
        f"{each} training {task.kind} a class are few: students train by the patient recipe ({task.kind} mixed up, "
        f"three times the epochs); --recipe {SHORT} is the short one"
    ], PATIENT


def further_samples(
    unlabelled: Split | Task | str | os.PathLike[str], method: type[Method], task: Task, held: Split
) -> tuple[Split, list[str]]:
    """The unlabelled samples without those that are held out to judge by; and which of them the task has as well."""
    everything = extra_samples(unlabelled, method)
    found = without(everything, held)
    if not len(found):
        raise PreceptorError(
            f"all {len(everything)} unlabelled samples are among those held out to judge by; give others"
        )
    return found, overlaps(everything, task.train, task.test)


def plain_students(
    folder: Path,
    task: Task,
    recipe: Any,
    options: Mapping[str, Any],
    extra: Split | None,
    shared: Mapping[str, Any],
) -> dict[str, Trial]:
    """The student without a teacher; beside a patient one a short one, since teachers must not gain by its harm."""
    trials = {}
    for name in (recipe, SHORT) if recipe == PATIENT else (recipe,):
        settings = _recipe_part(options)
        if name != recipe:
            settings.pop("mixup", None)
        if extra is not None:  # as many steps as the others have, or they would gain by their number alone
            settings["epochs"] = epochs_alone(resolve_recipe(name, settings).epochs, task.train, extra)
        path = folder / (PLAIN if name == recipe else f"{PLAIN}-{name}")
        trials[path.name] = trial(train, path, None, task, recipe=name, **shared, **settings)
    return trials


def trial(how: Callable[..., Result], path: Path, name: str | None, task: Task, **options: Any) -> Trial:
    """Train one student and judge it on the held-out part, which is the task's test split here."""
    result = how(task=task, out=path, **options)
    return Trial(name, result.accuracy, path, result)


def _recipe_part(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are settings of the recipe: the plain student has no method to take the others."""
    return {name: value for name, value in options.items() if name in RECIPE_FIELDS}
