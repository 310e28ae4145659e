"""Tab. 10: an extremely large gap, a teacher of birds for students of dogs."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book, chooser, paper_and_ours, table
from experiments.items import tab05
from experiments.jobs import Job, Scale, distillation

NAME, TITLE = "tab10", "Tab. 10: a teacher of birds, students of dogs"
METHODS = ("none", "sinkhorn", "rkd", "refilled", "mgd", "wcord", "fitnet", "probe-kd", "sinkhorn+probe")
PAPER = {
    "none": (72.35, 70.69, 70.11, 68.57), "fitnet": (71.14, 68.37, 69.90, 68.41), "rkd": (72.38, 70.15, 69.90, 68.42),
    "refilled": (73.07, 70.23, 69.35, 68.18), "wcord": (72.84, 69.98, 69.42, 68.20),
    "mgd": (73.25, 70.14, 69.77, 68.69), "sinkhorn": (73.55, 70.74, 70.35, 68.60),
}  # fmt: skip
FINDINGS = (
    "Ours: the smallest student alone knows so little of so few dogs that nearly every method helps, ReFilled by far "
    "the most, which the paper finds worse than no teacher for this student. `probe-kd` and ReFilled are ahead "
    "of `sinkhorn` with each seed, whose gain cannot be told from chance."
)


def jobs(scale: Scale) -> list[Job]:
    """The teacher has all 200 classes of CUB."""
    teacher = scale.teacher("cub200-all", "mobilenet-1.0")
    return [
        distillation(scale, NAME, "dogs", student, method, teacher, 0, seed, tier=40)
        for seed in scale.seeds
        for student in scale.few(tab05.STUDENTS[::-1])
        for method in METHODS
    ]


def section(book: Book, folder: Path) -> str:
    """The table."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    columns = scale.few(tab05.STUDENTS)
    lines = [[method, *(paper_and_ours(PAPER[method][tab05.STUDENTS.index(s)] if method in PAPER else None,
                                       book.accuracy(choose(student=scale.network(s), name=method)))
                        for s in columns)] for method in METHODS]  # fmt: skip
    return (
        "Accuracy in percent, paper / ours. The paper has all 120 breeds of Stanford Dogs; ours are 40 of them with 30 "
        "training images each at 112 px, so only the order of methods can be compared.\n\n"
        f"{FINDINGS}\n\n" + table(["", *columns], lines)
    )
