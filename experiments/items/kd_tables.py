"""What Tab. 4 to 7 share: standard distillation, teacher and student with the same classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.book import Book, chooser, paper_and_ours, table
from experiments.jobs import Job, Scale, distillation

FIRST = ("none", "sinkhorn", "kd", "rkd", "refilled", "mgd", "wcord", "probe-kd", "sinkhorn+probe")
LATER = ("fitnet", "vid", "afd", "seed", "sskd", "sftn")
Values = Mapping[str, tuple[float | None, ...]]


def jobs(scale: Scale, name: str, data: str, teacher: str, students: tuple[str, ...], tier: int) -> list[Job]:
    """The methods of Fig. 5 first, the others a tier later; born-again where the architectures are the same."""
    found = []
    for later, methods in enumerate((FIRST, LATER)):
        for seed in scale.seeds:
            for student in scale.few(students):
                same = ("ban",) if student == teacher and later else ()
                for method in scale.few([*methods, *same]):
                    spec = scale.teacher(data, teacher)
                    if method == "sftn":
                        spec = replace(spec, friend=scale.network(student))
                    found.append(
                        distillation(
                            scale, name, data, student, method, spec, 0, seed, tier=tier + 10 * later
                        )
                    )
    return found


def section(
    book: Book, name: str, jobs_at: Any, students: tuple[str, ...], paper: Values, teacher: str
) -> str:
    """The table, paper / ours."""
    scale = book.scale_of(name)
    some = jobs_at(scale)
    choose = chooser(some)
    columns = scale.few(students)
    names = list(dict.fromkeys([*paper, *FIRST, *(job.name for job in some)]))
    lines = []
    for method in names:
        cells = []
        for student in columns:
            value = paper[method][students.index(student)] if method in paper else None
            own = choose(student=scale.network(student), name=method)
            cells.append(paper_and_ours(value, book.accuracy(own)) if own or value else "–")
        lines.append([method, *cells])
    return (
        f"Accuracy in percent on all classes, paper / ours. {teacher} `aml`, which the table of the paper does not "
        "have, is left out; `sskd` trains its contrast head along; `ban` is one generation.\n\n"
        + table(["", *columns], lines)
    )
