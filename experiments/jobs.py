"""What is to be trained: a job is one row of results to be, whatever pack it will run in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from experiments.schedule import PLAIN
from experiments.sources import KINDS, TOYS, Kind
from experiments.variants import stages_of
from preceptor.distill.losses.table import default_options

Item = TypeVar("Item")
EPOCHS = 200
TOY_NETWORKS = {
    "wrn-40-2": "wrn-10-1", "wrn-16-2": "cnn-5", "wrn-40-1": "cnn-6", "wrn-16-1": "cnn-4", "resnet-18": "cnn-7",
    "mobilenet-1.0": "cnn-8", "mobilenet-0.75": "cnn-6", "mobilenet-0.5": "cnn-5", "mobilenet-0.25": "cnn-4",
    "resnet-50": "wrn-10-1",
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """How large everything is: the paper's sizes, or seconds on a CPU."""

    smoke: bool = False
    epochs: int = EPOCHS
    teacher_epochs: int = EPOCHS
    seeds: tuple[int, ...] = (0, 1, 2)

    def kind(self, data: str) -> Kind:
        """Facts about data at this scale."""
        return (TOYS if self.smoke else KINDS)[data]

    def few(self, items: Sequence[Item]) -> list[Item]:
        """All of them; the first and the last for smoke."""
        return [*items] if not self.smoke or len(items) < 3 else [items[0], items[-1]]

    def network(self, arch: str) -> str:
        """The architecture; a tiny one for smoke."""
        return TOY_NETWORKS[arch] if self.smoke else arch

    def count(self, data: str, per_class: int) -> int:
        """Labelled images a class; half of them all at most for smoke."""
        return min(per_class, self.kind(data).per_class // 2) if self.smoke else per_class

    def tasks(self, data: str) -> list[int]:
        """The student's tasks."""
        return self.few(range(self.kind(data).tasks))

    def teacher(self, data: str, arch: str, task: int = 0) -> TeacherSpec:
        """A teacher of this scale."""
        return TeacherSpec(data, task, self.network(arch), epochs=self.teacher_epochs)


PAPER = Scale()
SMOKE = Scale(smoke=True, epochs=1, teacher_epochs=1, seeds=(0,))


@dataclass(frozen=True)
class TeacherSpec:
    """A teacher: trained alone on a task, or with branches shaped like the student `friend` (SFTN)."""

    data: str
    task: int
    arch: str
    seed: int = 0
    epochs: int = EPOCHS
    friend: str | None = None

    @property
    def name(self) -> str:
        """The name of its file."""
        place = "" if self.data == "cifar100" else f"{self.data}-"
        friend = "" if self.friend is None else f"-for-{self.friend}"
        return f"{self.arch}-{place}window{self.task}-seed{self.seed}-{self.epochs}{friend}"


@dataclass(frozen=True)
class Job:
    """One training."""

    experiment: str
    data: str
    task: int
    student: str
    method: str
    teacher: TeacherSpec
    seed: int
    epochs: int
    batch: int
    options: tuple[
        tuple[str, Any], ...
    ] = ()  # of the method; values that begin with @ are computed (variants.py)
    per_class: int | None = None  # labelled images a class; all of them where None
    split: str = "test"  # what is evaluated: test, or validation images taken from train
    variant: str | None = None  # the name in tables, where it is not the method's
    recipe: str = PLAIN  # or another of schedule.py
    tier: int = 0  # jobs of a lower tier run first
    keep: bool = False  # the student's weights, for measurements later

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.variant or self.method

    @property
    def batches(self) -> int:
        """The seed of what it sees: images where they are few, their order and views; the rest is `seed`'s.

        With all images, seeds see the same batches, so that a pack can hold students of several: they differ in
        their first weights, which makes about as much of a spread as the order of images does.
        """
        return 0 if self.per_class is None else self.seed

    @property
    def group(self) -> tuple:
        """Jobs of one group may share a pack."""
        return (
            self.tier,
            self.data,
            self.task,
            self.batches,
            self.epochs,
            self.batch,
            self.per_class,
            self.split,
            self.recipe,
        )

    def identity(self) -> dict[str, Any]:
        """The fields of its row that tell it from others; its options do, too."""
        return {
            "data": self.data, "task": self.task, "student": self.student, "teacher": self.teacher.arch,
            "teacher_data": self.teacher.data, "teacher_task": self.teacher.task,
            "teacher_epochs": self.teacher.epochs, "method": self.method, "variant": self.name,
            "seed": self.seed, "epochs": self.epochs, "per_class": self.per_class, "split": self.split,
            "recipe": self.recipe,
        }  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """All options of the method as they will be, those of an earlier stage by its name."""
        *earlier, last = stages_of(self.method)
        found = {
            f"{stage.name}.{k}": v for stage in earlier for k, v in _plain(default_options(stage)).items()
        }
        return {**found, **_plain(default_options(last)), **dict(self.options)}

    def digest(self) -> str:
        """A short name for files that belong to it."""
        return digest([self.identity(), self.settings()])

    def matches(self, row: dict[str, Any]) -> bool:
        """Whether a row is this job's: an option that came later than the row does not count against it."""
        row = {"recipe": PLAIN, **row}  # rows from before there was another
        if any(row.get(name) != value for name, value in self.identity().items()):
            return False
        noted, own = row.get("options", {}), self.settings()
        return all(own.get(name) == value for name, value in noted.items()) and all(
            noted.get(name) == value for name, value in self.options
        )


def digest(value: Any) -> str:
    """A short name for what can be written as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if v is not None and isinstance(v, bool | int | float | str)}


def distillation(
    scale: Scale, experiment: str, data: str, student: str, method: str, teacher: str | TeacherSpec, task: int,
    seed: int, options: dict[str, Any] | None = None, **rest: Any,
) -> Job:  # fmt: skip
    """A job with the data's own batch size; a teacher's name means that of the first task."""
    if isinstance(teacher, str):
        teacher = scale.teacher(data, teacher)
    return Job(
        experiment, data, task, scale.network(student), method, teacher, seed, scale.epochs, scale.kind(data).batch,
        tuple(sorted((options or {}).items())), **rest,
    )  # fmt: skip
