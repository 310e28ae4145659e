"""The gains of Fig. 5, of few labels and of unseen images in one small table, for readers who choose a method."""

from __future__ import annotations

from experiments.bars import gains_by_overlap
from experiments.book import SEEDS, Book, Sample, chooser, table
from experiments.items import few, fig05, seen
from experiments.jobs import Job
from experiments.schedule import MIXED_EARLY, PATIENT, PLAIN

DATA, COUNT = "cifar100", 25
METHODS = (
    "sinkhorn",
    "sinkhorn+probe",
    few.FALLING,
    "probe-kd",
    "kd",
    "refilled",
    "mgd",
    "aml",
    "wcord",
    fig05.GENTLE_RKD,
    "rkd",
    "finetune",
)


def gains_table(book: Book) -> str:
    """Points over the student alone and their standard error, for methods and overlaps that have been run."""
    scale = book.scale
    tasks = scale.tasks(DATA)
    student, whole = fig05.STUDENTS[DATA][0], f"{scale.kind(DATA).per_class} images a class"
    by_task = [
        [job for seed in scale.seeds for job in fig05.setting(scale, DATA, student, task, seed)] for task in tasks
    ]  # fmt: skip
    lines = [*_methods(book, whole, by_task), *_on_mixed_images(book, whole)]
    halves = chooser(seen.jobs(scale))
    for data, way in seen.WAYS.items():
        named = f"{scale.kind(data).per_class} images a class, {way} by the teacher"
        lines += _methods(book, named, [halves(data=data, task=task) for task in tasks])
    for kind in (PLAIN, few.RUN, PATIENT):
        named = f"{COUNT} images a class" + ("" if kind == PLAIN else f", {few.TOLD[kind]}")
        lines += _methods(book, named, [
            [job for seed in scale.seeds for job in few.setting(scale, DATA, COUNT, task, seed, 0, kind)]
            if task in few.TASKS[DATA] else [] for task in tasks
        ])  # fmt: skip
    return table(
        ["classes in common", *(f"{fig05.overlap_of(scale, DATA, task):.0%}" for task in tasks)], lines
    )


def _methods(book: Book, images: str, by_task: list[list[Job]]) -> list[list[str]]:
    """A line for each method that has been run."""
    lines = [[f"{images}, `{name}`", *(_cell(book, jobs, name) for jobs in by_task)] for name in METHODS]
    return [line for line in lines if any(line[1:])]


def _on_mixed_images(book: Book, images: str) -> list[list[str]]:
    """What mixing gave the student alone, and a teacher on top of that."""
    none = ("none", MIXED_EARLY)
    pairs = {"the student alone, against not mixed": (none, ("none", PLAIN))}
    for method in fig05.MIXED_METHODS[1:]:
        pairs[f"`{method}`, against alone and mixed"] = ((method, MIXED_EARLY), none)
    lines = [
        [f"{images}, mixed in the first half: {name}", *map(_shown, gains_by_overlap(book, *pair).values())]
        for name, pair in pairs.items()
    ]
    return [line for line in lines if any(line[1:])]


def _cell(book: Book, jobs: list[Job], name: str) -> str:
    choose = chooser(jobs)
    return _shown(book.gains(choose(name=name), choose(name="none")))


def _shown(gain: Sample) -> str:
    count = len(gain.values)
    if count < 2:
        return ""
    return gain.gain(1) + (f" ({count})" if count < SEEDS else "")
