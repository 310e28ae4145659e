"""The gains of Fig. 5, of few labels and of unseen images in one small table, for readers who choose a method."""

from __future__ import annotations

from experiments.book import SEEDS, Book, Sample, chooser, table
from experiments.items import few, fig05, seen
from experiments.jobs import Job
from experiments.schedule import PATIENT, PLAIN

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
    student = fig05.STUDENTS[DATA][0]
    lines = []
    settings = {f"{scale.kind(DATA).per_class} images a class": [
        [job for seed in scale.seeds for job in fig05.setting(scale, DATA, student, task, seed)] for task in tasks
    ]}  # fmt: skip
    halves = chooser(seen.jobs(scale))
    for data, way in seen.WAYS.items():
        named = f"{scale.kind(data).per_class} images a class, {way} by the teacher"
        settings[named] = [halves(data=data, task=task) for task in tasks]
    for recipe in (PLAIN, PATIENT):
        named = f"{COUNT} images a class" + ("" if recipe == PLAIN else f", `{recipe}`")
        settings[named] = [
            [job for seed in scale.seeds for job in few.setting(scale, DATA, COUNT, task, seed, 0, recipe)]
            if task in few.TASKS[DATA] else [] for task in tasks
        ]  # fmt: skip
    for images, by_task in settings.items():
        for name in METHODS:
            cells = [_cell(book, jobs, name) for jobs in by_task]
            if any(cells):
                lines.append([f"{images}, `{name}`", *cells])
    return table(
        ["classes in common", *(f"{fig05.overlap_of(scale, DATA, task):.0%}" for task in tasks)], lines
    )


def _cell(book: Book, jobs: list[Job], name: str) -> str:
    choose = chooser(jobs)
    gain: Sample = book.gains(choose(name=name), choose(name="none"))
    count = len(gain.values)
    if count < 2:
        return ""
    return gain.gain(1) + (f" ({count})" if count < SEEDS else "")
