"""Small tables of gains for readers who choose a method, or want to know whether a teacher is worth having."""

from __future__ import annotations

from collections.abc import Callable

from experiments.bars import best_alone, gains_by_overlap, ways_alone
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
    student, whole = fig05.STUDENTS[DATA][0], f"{scale.kind(DATA).per_class} images a class, "
    by_task = [
        [job for seed in scale.seeds for job in fig05.setting(scale, DATA, student, task, seed)] for task in tasks
    ]  # fmt: skip
    lines = [*_methods(book, whole, by_task), *_on_mixed_images(book, whole)]
    halves = chooser(seen.jobs(scale))
    for data, way in seen.WAYS.items():
        named = f"{scale.kind(data).per_class} images a class, {way} by the teacher, "
        lines += _methods(book, named, [halves(data=data, task=task) for task in tasks])
    for kind in (PLAIN, few.RUN, PATIENT):
        named = f"{COUNT} images a class" + (", " if kind == PLAIN else f", {few.TOLD[kind]}, ")
        taught = [_few(book, DATA, COUNT, task, kind) for task in tasks]
        # Without mixing, the student alone is not mixed, either.
        kinds = (PLAIN,) if kind == PLAIN else few.KINDS
        lines += _methods(book, named, taught, [best_alone(book, DATA, COUNT, task, kinds) for task in tasks])
    return table(
        ["classes in common", *(f"{fig05.overlap_of(scale, DATA, task):.0%}" for task in tasks)], lines
    )


def few_table(book: Book, data: str = DATA, count: int = COUNT) -> str:
    """With few labels: the student alone at its best, gains over that, and what fine-tuning the teacher reaches."""
    tasks = few.TASKS[data]
    alone = [best_alone(book, data, count, task) for task in tasks]
    ways = min(len(ways_alone(book, data, count, task)) for task in tasks)
    taught = {kind: [_few(book, data, count, task, kind) for task in tasks] for kind in (few.RUN, PATIENT)}
    mixing = few.RUN if _whole(book, taught[few.RUN], alone) else PATIENT
    named = "student alone, " + (f"the best of {ways} ways to mix" if ways > 1 else few.TOLD[mixing])
    lines = [[named, *(_reached(book.accuracy(jobs)) for jobs in alone)]]
    lines += _methods(book, f"{few.TOLD[mixing]}, ", taught[mixing], alone)
    tuned = [chooser(_few(book, data, count, task, PLAIN))(name="finetune") for task in tasks]
    if all(book.accuracy(jobs).values for jobs in tuned):
        lines.append(
            ["the teacher's own network, fine-tuned", *(_reached(book.accuracy(jobs)) for jobs in tuned)]
        )
    shares = (f"{fig05.overlap_of(book.scale, data, task):.0%}" for task in tasks)
    return table([f"{data}, {count} images a class; classes in common", *shares], lines)


def many_table(book: Book) -> str:
    """With many labels: what a teacher gave, what mixing gave, and what images that are new to the teacher give."""
    scale, tasks = book.scale, book.scale.tasks(DATA)
    none, mixed = ("none", PLAIN), ("none", MIXED_EARLY)
    pairs = {
        "`sinkhorn`": (("sinkhorn", PLAIN), none),
        "no teacher, images mixed in the first half": (mixed, none),
        "`sinkhorn` on top of that": (("sinkhorn", MIXED_EARLY), mixed),
    }
    paper = fig05.paper_gains(DATA, fig05.STUDENTS[DATA][0])
    shares = [fig05.overlap_of(scale, DATA, task) for task in tasks]
    said = {round(share, 6): gain for share, gain in paper.items()}
    lines = [["500, `sinkhorn` in the paper", *(f"{said[round(share, 6)]:+.1f}" for share in shares)]]
    lines += [
        [f"500, {name}", *map(_shown, gains_by_overlap(book, *pair).values())] for name, pair in pairs.items()
    ]
    halves = chooser(seen.jobs(scale))
    for data, way in seen.WAYS.items():
        taught = [halves(data=data, task=task) for task in tasks]
        lines += _methods(book, f"{scale.kind(data).per_class}, images {way} by the teacher, ", taught)
    return table(["images a class; classes in common", *(f"{share:.0%}" for share in shares)], lines)


def _few(book: Book, data: str, count: int, task: int, kind: str) -> list[Job]:
    """Students of few labels, where the task is one of those that have them."""
    scale = book.scale
    return [job for seed in scale.seeds for job in few.setting(scale, data, count, task, seed, 0, kind)
            if task in few.TASKS[data]]  # fmt: skip


def _whole(book: Book, by_task: list[list[Job]], alone: list[list[Job]]) -> bool:
    """Whether gains of students of teachers can be shown for each task."""
    gains = [
        book.gains(chooser(jobs)(name="sinkhorn+probe"), base)
        for jobs, base in zip(by_task, alone, strict=True)
    ]
    return all(map(_shown, gains))


def _methods(
    book: Book, images: str, by_task: list[list[Job]], alone: list[list[Job]] | None = None
) -> list[list[str]]:
    """A line for each method that has been run, over the student alone of the same jobs or over another."""
    alone = alone or [chooser(jobs)(name="none") for jobs in by_task]
    lines = [
        [f"{images}`{name}`", *(_shown(book.gains(chooser(jobs)(name=name), base))
                                  for jobs, base in zip(by_task, alone, strict=True))]
        for name in METHODS
    ]  # fmt: skip
    return [line for line in lines if any(line[1:])]


def _on_mixed_images(book: Book, images: str) -> list[list[str]]:
    """What mixing gave the student alone, and a teacher on top of that."""
    none = ("none", MIXED_EARLY)
    pairs = {"the student alone, against not mixed": (none, ("none", PLAIN))}
    for method in fig05.MIXED_METHODS[1:]:
        pairs[f"`{method}`, against alone and mixed"] = ((method, MIXED_EARLY), none)
    lines = [
        [f"{images}mixed in the first half: {name}", *map(_shown, gains_by_overlap(book, *pair).values())]
        for name, pair in pairs.items()
    ]
    return [line for line in lines if any(line[1:])]


def _reached(accuracy: Sample) -> str:
    """Such as ``42.5 % ± 0.3 (2)``."""
    first, *rest = accuracy.shown(digits=1).split()
    return " ".join([first, "%", *rest]) if accuracy.values else ""


def _shown(gain: Sample) -> str:
    count = len(gain.values)
    if count < 2:
        return ""
    return gain.gain(1) + (f" ({count})" if count < SEEDS else "")


# Marker -> the page on which the table stands, and what makes it.
TABLES: dict[str, tuple[str, Callable[[Book], str]]] = {
    "gains": ("choosing.md", gains_table),
    "few": ("when-it-helps.md", few_table),
    "few-birds": ("when-it-helps.md", lambda book: few_table(book, "cub200", 10)),
    "many": ("when-it-helps.md", many_table),
}
