"""The students of a run: with which recipe, and from which teachers by which methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Self

from preceptor.core import PreceptorError
from preceptor.data import Split, Task
from preceptor.data.unlabelled import overlaps, without
from preceptor.distill.fitting import Fitting
from preceptor.distill.losses import METHODS
from preceptor.distill.losses.table import default_options
from preceptor.distill.prepare import Settings
from preceptor.distill.recipe import RECIPE_FIELDS
from preceptor.distill.result import Result
from preceptor.distill.schedules import SCHEDULES, check_call, distill, takes_no_unlabelled
from preceptor.distill.train import check_unlabelled, extra_samples
from preceptor.wording import counted

FEW = 100  # images a class
SHORT, MIXED, PATIENT, PHOTOGRAPHS = "small", "mixed", "patient", "photographs"  # recipes
# The first is level or better where the teacher knows the student's classes, the second where it does not; with many
# labels neither can be foretold (docs/choosing.md).
METHODS_TRIED = ("sinkhorn", "sinkhorn+probe")


@dataclass(frozen=True)
class Trial:
    """One student of a run: the teacher it had, and how it did on validation data."""

    teacher: str | None  # None: the plain student
    validation_accuracy: float
    path: Path
    result: Result
    method: str = "none"


@dataclass(frozen=True)
class Attempt:
    """How one student is to be trained, on whatever part of the data."""

    folder: str  # its name
    teacher: str | None
    method: str
    how: Callable[..., Result]  # train or distill
    options: Mapping[str, Any]

    @classmethod
    def by(cls, method: str, name: str, teacher: str, options: Mapping[str, Any], several: bool) -> Self:
        """With the teacher that lies at `teacher`; the folder bears the method's name where `several` are tried."""
        folder = f"from-{name}-by-{method}" if several else f"from-{name}"
        return cls(folder, name, method, distill, {"teacher": teacher, **options})

    def on(self, task: Task, parent: Path, **more: Any) -> Trial:
        """Train on the task's training split and judge by its test split."""
        path = parent / self.folder
        result = self.how(task=task, out=path, method=self.method, **self.options, **more)
        return Trial(self.teacher, result.accuracy, path, result, self.method)

    def without_stop(self, trial: Result) -> Self:
        """The same without early stopping, which would hold labels back, for as many epochs as the trial's weights saw.

        The learning rate falls to its end over these epochs, and so does what a method makes of its progress. The
        trial's best weights came before its schedule had ended; but a schedule is cut for the length of a training, and
        one that broke off halfway would leave the student at a rate that no recipe ends with. Images, too, are mixed
        for the recipe's share of these epochs, also where the trial stopped before its share was over. All trainings of
        a method of several take the last one's epochs, save an earlier one with a patience of its own.
        """
        changes: dict[str, Any] = {}
        if trial.config["recipe"]["patience"]:
            changes = {"patience": 0, "epochs": trial.epochs, "min_steps": 0}
        for name, value in self.options.items():
            # Settings of the training before the last one; no method has two of these.
            if isinstance(value, Mapping) and value.get("patience"):
                changes[name] = {**value, "patience": 0, "epochs": trial.stages[0].epochs, "min_steps": 0}
        return replace(self, options={**self.options, **changes})


@dataclass(frozen=True)
class Way:
    """A method that is to be tried, and what it asks of teachers; made before anything takes time."""

    method: str
    settings: Settings
    fitting: Fitting

    @classmethod
    def of(cls, method: str, recipe: Any, options: Mapping[str, Any], student: str, task: Task) -> Self:
        """Refuses what the method, the recipe or the student cannot take."""
        settings = check_call(method, recipe, options, task.kind)
        return cls(method, settings, Fitting.of(settings, student, task, special=method == "sftn"))


def choose_recipe(recipe: Any, task: Task, options: Mapping[str, Any]) -> tuple[list[str], Any]:
    """The recipe as asked for, or by the number of labels; and what there is to say about the choice."""
    if recipe is not None:
        return [], recipe
    if "mixup" in options:
        return [], SHORT
    each = len(task.train) // len(task.classes)
    if each >= FEW or "epochs" in options:
        return [
            f"students train by the mixed recipe ({task.kind} mixed up at first, later as they are); recipe={SHORT!r} "
            f"(--recipe {SHORT}) mixes none"
        ], MIXED
    labelled = counted(each, f"training {task.kind.removesuffix('s')}")
    return [
        f"{labelled} a class {'is' if each == 1 else 'are'} few: students train by the patient recipe ({task.kind} "
        f"mixed up, three times the epochs or more); recipe={MIXED!r} (--recipe {MIXED}) is a shorter one"
    ], PATIENT


def choose_methods(
    method: str | Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """The methods as asked for, or two; with options of a method that which has most of them; and what to say."""
    if isinstance(method, str):
        return [], (method,)
    if method is not None:
        if not method:
            raise PreceptorError("no method came; name one or more, or leave it out")
        return [], tuple(dict.fromkeys(method))
    if own := options.keys() - RECIPE_FIELDS:
        return [], (max(METHODS_TRIED, key=lambda name: _likeness(own, default_options(METHODS[name]))),)
    return [f"{' and '.join(METHODS_TRIED)} are both tried; method (--method) names one"], METHODS_TRIED


def _likeness(asked: Iterable[str], known: Iterable[str]) -> tuple[int, float]:
    """How many options are known, then how near all come to those: one that is misspelt is told of its neighbour."""
    nearest = [max(SequenceMatcher(None, one, other).ratio() for other in known) for one in asked]
    return nearest.count(1.0), sum(nearest)


def in_order(ways: Sequence[Way], known: Sequence[str], classes: Sequence[str]) -> list[Way]:
    """The method first that suits a teacher of the `known` classes: where several draw, the first is kept."""
    first = METHODS_TRIED[0 if set(classes) <= set(known) else 1]
    return sorted(ways, key=lambda way: way.method != first)


def further_samples(
    unlabelled: Split | Task | str | os.PathLike[str], ways: Sequence[Way], task: Task, held: Split
) -> tuple[Split, list[str]]:
    """The unlabelled samples without those that are held out to judge by; and which of them the task has as well."""
    for way in ways:
        if way.method in SCHEDULES:
            raise takes_no_unlabelled(way.method)
        check_unlabelled(way.settings.method)
    everything = extra_samples(unlabelled, ways[0].settings.method)
    found = without(everything, held)
    if not len(found):
        count = len(everything)
        what = "the only unlabelled sample is" if count == 1 else f"all {count} unlabelled samples are"
        raise PreceptorError(f"{what} among those held out to judge by; give others")
    return found, overlaps(everything, task.train, task.test)
