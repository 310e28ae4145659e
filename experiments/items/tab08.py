"""Tab. 8: other costs between classes in the place of ours."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book, Chooser, chooser, paper_and_ours, table
from experiments.items import fig05
from experiments.jobs import Job, Scale, distillation

NAME, TITLE = "tab08", "Tab. 8: ablation of the cost matrix"
TASK = {"cifar100": 2, "cub200": 2}  # 60 % and 50 % overlap
SHALLOW = {"cifar100": "wrn-16-2", "cub200": "mobilenet-0.5"}
TIERS = {"wrn-16-1": 30, "wrn-16-2": 31}
COSTS = ("constant", "random", "superclass", "shallow")
PAPER = {
    "cifar100": {"constant": (76.42, 71.50, 73.33, 66.69), "random": (75.17, 72.38, 73.69, 67.95),
                 "superclass": (77.14, 73.82, 74.90, 68.37), "shallow": (78.15, 75.33, 75.29, 69.04),
                 "ours": (80.51, 76.92, 77.87, 70.34)},
    "cub200": {"constant": (67.89, 61.60, 62.33, 61.42), "random": (65.30, 62.35, 64.47, 62.54),
               "shallow": (68.47, 66.54, 66.20, 65.35), "ours": (70.94, 68.13, 67.78, 66.17)},
}  # fmt: skip


def options(scale: Scale, data: str, cost: str) -> dict[str, str]:
    """The method's options for a cost of the table."""
    extra = {
        "constant": {},
        "random": {"matrix": "@random"},
        "superclass": {"superclasses": "@superclasses"},
        "shallow": {"matrix": f"@shallow:{scale.network(SHALLOW[data])}"},
    }
    return {"cost": cost, **extra[cost]}


def jobs(scale: Scale) -> list[Job]:
    """The four other costs; ours and the student alone are Fig. 5's."""
    return [
        distillation(scale, NAME, data, student, "sinkhorn", fig05.TEACHERS[data], TASK[data], seed,
                     options(scale, data, cost), variant=cost, tier=TIERS.get(student, 66))
        for data in TASK
        for student in scale.few(fig05.STUDENTS[data])
        for seed in scale.seeds
        for cost in COSTS
        if not (data == "cub200" and cost == "superclass")
    ]  # fmt: skip


def references(scale: Scale, data: str, student: str) -> dict[str, list[Job]]:
    """Fig. 5's jobs that belong into this table."""
    some = [job for seed in scale.seeds for job in fig05.setting(scale, data, student, TASK[data], seed)]
    return {"ours": [j for j in some if j.name == "sinkhorn"], "none": [j for j in some if j.name == "none"]}


def section(book: Book, folder: Path) -> str:
    """One table a data set."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    parts = [
        "Accuracy in percent, paper / ours. `ours` and `none` are the rows of Fig. 5 at the same overlap."
    ]
    for data in TASK:
        students = scale.few(fig05.STUDENTS[data])
        known = {student: references(scale, data, student) for student in students}
        lines = []
        for cost in ("none", *COSTS, "ours"):
            cells = []
            for student in students:
                own = known[student].get(cost) or choose(data=data, student=scale.network(student), name=cost)
                order = fig05.PAPER_ORDER[data].index(student)
                value = PAPER[data][cost][order] if cost in PAPER[data] else None
                if cost == "none":
                    value = fig05.said(data, student, fig05.overlap_of(scale, data, TASK[data]), "none")
                cells.append(paper_and_ours(value, book.accuracy(own)) if own else "–")
            lines.append([cost, *cells])
        share = fig05.overlap_of(scale, data, TASK[data])
        parts += [table([f"{data}, {share:.0%}", *students], lines), _lead(book, choose, data, known)]
    return "\n\n".join(filter(None, parts))


def _lead(book: Book, choose: Chooser, data: str, known: dict[str, dict[str, list[Job]]]) -> str:
    """How far ours is ahead of the other costs on the same seeds, for the students that have several."""
    found = []
    for student, jobs_of in known.items():
        gains = {
            cost: book.gains(jobs_of["ours"], choose(data=data, student=student, name=cost)) for cost in COSTS
        }
        found += [f"`{cost}` by {gain.gain()}" for cost, gain in gains.items() if len(gain.values) > 1]
    return f"On the same seeds `ours` leads (± standard error) {', '.join(found)}." if found else ""
