"""Fig. 5 with Tab. A1 and A2: students of the first window's teacher at every overlap of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.book import (
    COLOURS,
    MARKERS,
    Book,
    chooser,
    one_legend,
    paper_and_ours,
    plain_axes,
    save_figure,
    table,
)
from experiments.jobs import Job, Scale, distillation
from experiments.schedule import MIXED_EARLY, PLAIN
from preceptor.distill.recipe import RECIPES

NAME, TITLE = "fig05", "Fig. 5, Tab. A1 and A2: generalised knowledge distillation"
TEACHERS = {"cifar100": "wrn-40-2", "cub200": "mobilenet-1.0"}
STUDENTS = {
    "cifar100": ("wrn-16-1", "wrn-16-2", "wrn-40-1", "wrn-40-2"),
    "cub200": ("mobilenet-0.25", "mobilenet-0.5", "mobilenet-0.75", "mobilenet-1.0"),
}
TIERS = {"wrn-16-1": 0, "wrn-16-2": 1, "mobilenet-0.25": 60, "wrn-40-1": 61, "wrn-40-2": 62}
METHODS = ("none", "sinkhorn", "rkd", "aml", "refilled", "mgd", "wcord", "probe-kd", "sinkhorn+probe")
# RKD's usual weights drown the labels of a small student (docs/methods.md): beside them, the method at its better.
GENTLE_RKD, GENTLE = "rkd, a fifth of its weights", {"distance_weight": 5.0, "angle_weight": 10.0}
MIXED_METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")  # that are trained on mixed images, too
PAPER_RECIPES = {"cifar100": "paper", "cub200": "cub-paper"}
LITERAL = dict(RECIPES["paper"].method_options["sinkhorn"])  # Sec. 6.1.2 in full, whatever the defaults are
SOFTER = {**LITERAL, "weight": 100.0, "temperature": 8.0, "center": True, "schedule": "linear-decay"}

# Appendix 3.1: method -> accuracies in the order of `STUDENTS` reversed, (40,2) … (16,1) and 1.0 … 0.25.
PAPER: dict[str, dict[float, dict[str, tuple[float, ...]]]] = {
    "cifar100": {
        0.0: {"none": (81.02, 78.94, 78.98, 73.70), "rkd": (81.46, 79.23, 78.80, 73.45),
              "aml": (79.99, 79.11, 78.99, 73.68), "refilled": (82.60, 80.70, 80.18, 74.42),
              "mgd": (79.24, 79.31, 77.74, 73.79), "wcord": (80.29, 80.38, 77.83, 73.90),
              "sinkhorn": (81.75, 80.91, 81.04, 74.33)},
        0.2: {"none": (80.34, 76.12, 75.43, 70.84), "rkd": (80.56, 76.77, 75.82, 71.05),
              "aml": (80.05, 76.95, 75.37, 70.79), "refilled": (81.40, 77.82, 77.24, 72.28),
              "mgd": (80.25, 76.25, 75.57, 71.22), "wcord": (80.50, 77.19, 75.77, 71.52),
              "sinkhorn": (81.28, 78.14, 77.84, 72.45)},
        0.4: {"none": (78.86, 75.67, 74.98, 69.36), "rkd": (79.33, 75.58, 74.69, 69.07),
              "aml": (79.98, 75.84, 74.28, 68.87), "refilled": (80.40, 76.26, 75.62, 70.08),
              "mgd": (79.44, 75.24, 74.08, 69.13), "wcord": (81.18, 76.22, 74.50, 69.37),
              "sinkhorn": (81.33, 76.14, 75.99, 70.90)},
        0.6: {"none": (78.90, 76.37, 75.14, 68.48), "rkd": (78.69, 76.20, 75.50, 68.23),
              "aml": (79.32, 76.45, 75.23, 68.64), "refilled": (80.66, 76.66, 76.52, 69.50),
              "mgd": (78.95, 75.55, 75.03, 68.30), "wcord": (78.92, 75.25, 76.48, 69.72),
              "sinkhorn": (80.51, 76.92, 77.87, 70.34)},
        0.8: {"none": (80.50, 77.43, 76.96, 72.16), "rkd": (81.21, 77.65, 77.34, 72.05),
              "aml": (81.06, 77.20, 77.06, 72.35), "refilled": (82.56, 78.76, 79.28, 73.92),
              "mgd": (81.46, 76.60, 77.86, 71.78), "wcord": (81.54, 77.16, 77.80, 73.09),
              "sinkhorn": (82.33, 78.29, 80.08, 74.17)},
        1.0: {"none": (80.66, 77.94, 76.35, 71.56), "rkd": (80.52, 78.03, 76.82, 72.04),
              "aml": (80.73, 78.24, 77.15, 71.79), "refilled": (81.58, 78.60, 78.04, 73.52),
              "mgd": (80.13, 77.64, 76.35, 71.09), "wcord": (81.50, 77.78, 76.85, 71.94),
              "sinkhorn": (82.32, 78.33, 77.85, 74.17)},
    },
    "cub200": {
        0.0: {"none": (71.25, 67.56, 66.85, 64.48), "rkd": (72.24, 68.42, 66.85, 65.74),
              "aml": (72.86, 68.79, 68.59, 66.83), "refilled": (75.13, 71.67, 71.06, 68.22),
              "mgd": (72.24, 69.43, 69.78, 67.13), "wcord": (72.78, 69.81, 69.20, 67.70),
              "sinkhorn": (75.03, 71.44, 71.35, 69.66)},
        0.25: {"none": (71.30, 71.08, 68.56, 65.71), "rkd": (72.07, 71.70, 68.56, 66.43),
               "aml": (72.35, 72.05, 70.37, 67.20), "refilled": (75.09, 73.92, 72.99, 70.04),
               "mgd": (73.41, 72.52, 69.99, 67.99), "wcord": (73.97, 72.99, 70.89, 67.28),
               "sinkhorn": (75.52, 74.33, 72.85, 71.12)},
        0.5: {"none": (68.20, 66.11, 65.23, 62.26), "rkd": (68.72, 66.82, 65.58, 62.79),
              "aml": (67.94, 67.34, 66.29, 63.64), "refilled": (70.25, 68.39, 68.50, 65.33),
              "mgd": (68.10, 67.90, 66.81, 64.24), "wcord": (68.45, 67.42, 66.89, 63.95),
              "sinkhorn": (70.94, 68.13, 67.78, 66.17)},
        0.75: {"none": (65.53, 66.73, 64.10, 60.81), "rkd": (65.89, 67.28, 64.66, 61.35),
               "aml": (66.32, 66.92, 65.03, 62.09), "refilled": (67.28, 68.35, 66.72, 63.03),
               "mgd": (67.01, 67.56, 65.43, 63.29), "wcord": (66.89, 67.60, 66.00, 63.11),
               "sinkhorn": (67.79, 69.20, 66.46, 64.17)},
        1.0: {"none": (67.76, 67.98, 64.91, 62.17), "rkd": (67.23, 68.25, 65.73, 62.04),
              "aml": (67.06, 68.35, 66.27, 62.69), "refilled": (68.77, 69.10, 68.44, 63.33),
              "mgd": (67.46, 68.35, 67.31, 62.50), "wcord": (67.72, 68.75, 68.07, 63.24),
              "sinkhorn": (70.03, 70.87, 69.55, 65.72)},
    },
}  # fmt: skip
PAPER_ORDER = {"cifar100": ("wrn-40-2", "wrn-16-2", "wrn-40-1", "wrn-16-1"),
               "cub200": ("mobilenet-1.0", "mobilenet-0.75", "mobilenet-0.5", "mobilenet-0.25")}  # fmt: skip


def said(data: str, student: str, overlap: float, method: str) -> float | None:
    """The paper's accuracy in percent."""
    row = PAPER[data].get(overlap, {}).get(method)
    return None if row is None else row[PAPER_ORDER[data].index(student)]


def paper_gains(data: str, student: str) -> dict[float, float]:
    """Points that `sinkhorn` gained in the paper, by overlap."""
    found = PAPER[data].items()
    place = PAPER_ORDER[data].index(student)
    return {share: row["sinkhorn"][place] - row["none"][place] for share, row in found}


def jobs(scale: Scale) -> list[Job]:
    """Students, seeds and tasks from the most wanted on."""
    found = [
        job
        for data, students in STUDENTS.items()
        for student in scale.few(students)
        for seed in scale.seeds
        for task in scale.tasks(data)
        for job in setting(scale, data, student, task, seed)
    ]
    if not scale.smoke:
        # Level with the default in the search where labels are many: the test set may tell the two apart.
        found += [distillation(scale, NAME, "cifar100", "wrn-16-1", "sinkhorn", TEACHERS["cifar100"], task, seed,
                               SOFTER, tier=80, variant="sinkhorn, temperature 8")
                  for seed in scale.seeds for task in scale.tasks("cifar100")]  # fmt: skip
        found += [
            job
            for seed in scale.seeds
            for task in scale.tasks("cifar100")
            for job in mixed(scale, task, seed)
        ]
    return found


def named(method: str, recipe: str) -> str:
    """What tables call a method by a recipe."""
    return method if recipe == PLAIN else f"{method}, {recipe}"


def mixed(scale: Scale, task: int, seed: int) -> list[Job]:
    """WRN-16-1 on images that are mixed in the first half of the epochs, which lifts the student alone, too."""
    return [
        distillation(scale, NAME, "cifar100", "wrn-16-1", method, TEACHERS["cifar100"], task, seed, tier=79,
                     variant=named(method, MIXED_EARLY), recipe=MIXED_EARLY)
        for method in MIXED_METHODS
    ]  # fmt: skip


def setting(scale: Scale, data: str, student: str, task: int, seed: int) -> list[Job]:
    """All methods for one student, task and seed."""
    methods = [*METHODS, "kd"] if task == 0 else [*METHODS]
    tier = TIERS.get(student, 65)
    found = [
        distillation(scale, NAME, data, student, m, TEACHERS[data], task, seed, tier=tier) for m in methods
    ]
    found.append(distillation(scale, NAME, data, student, "rkd", TEACHERS[data], task, seed, GENTLE, tier=tier,
                              variant=GENTLE_RKD))  # fmt: skip
    literal = literal_options(data)
    paper = distillation(scale, NAME, data, student, "sinkhorn", TEACHERS[data], task, seed, literal, tier=tier,
                         variant="sinkhorn, paper's setting")  # fmt: skip
    default = next(job for job in found if job.method == "sinkhorn").settings()
    if any(default.get(name) != value for name, value in literal.items()):
        found.append(paper)
    return found


def literal_options(data: str) -> dict[str, Any]:
    """The paper's own setting of `sinkhorn` for a data set."""
    return dict(RECIPES[PAPER_RECIPES[data]].method_options["sinkhorn"])


def overlap_of(scale: Scale, data: str, task: int) -> float:
    """The overlap of a task with the first one."""
    return round(scale.kind(data).overlap(0, task), 6)


def section(book: Book, folder: Path) -> str:
    """A table for each student, and the figure."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    parts = [
        "Accuracy in percent, paper / ours: mean ± standard deviation over seeds (number of seeds). The teacher is "
        "the first window's, one for all seeds, so that the spread is that of students; all students of a task see "
        "the same batches, and seeds differ in the first weights. Classes are sorted by our own "
        "seed, so windows are not the paper's and columns are to be compared within themselves. "
        "`sinkhorn` is the product's default; where it differs from Sec. 6.1.2, the paper's own setting has a row. "
        f"`{MIXED_EARLY}` has images mixed up (mixup, alpha 1) in the first half of the epochs, as in the product's "
        "recipes `cifar100` and `mixed`; all else is trained as in the paper. "
        "Gains with their standard errors, and what was ahead of what, are in [choosing](choosing.md#method)."
    ]
    parts.append(book.trained_again(NAME))
    for data in STUDENTS:
        for student in scale.few(STUDENTS[data]):
            some = choose(data=data, student=scale.network(student))
            tasks = sorted({job.task for job in some})
            head = [f"{student}", *(f"{overlap_of(scale, data, task):.0%}" for task in tasks)]
            lines = []
            for name in dict.fromkeys(job.name for job in some):
                cells = []
                for task in tasks:
                    chosen = [job for job in some if job.name == name and job.task == task]
                    value = said(data, student, overlap_of(scale, data, task), name)
                    cells.append(paper_and_ours(value, book.accuracy(chosen)) if chosen else "")
                lines.append([name, *cells])
            parts.append(table(head, lines))
        parts.append(_draw(book, scale, data, folder))
    return "\n\n".join(part for part in parts if part)


def _draw(book: Book, scale: Scale, data: str, folder: Path) -> str:
    """Gains over the student alone, ours beside the paper's."""
    choose = chooser(jobs(scale))
    student = STUDENTS[data][0]
    tasks = scale.tasks(data)
    places = [100 * overlap_of(scale, data, task) for task in tasks]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    drawn = False
    for colour, marker, method in zip(COLOURS, MARKERS, METHODS[1:], strict=False):
        pairs = [(choose(data=data, student=scale.network(student), task=task, name=method),
                  choose(data=data, student=scale.network(student), task=task, name="none"))
                 for task in tasks]  # fmt: skip
        gains = [book.gains(*pair) for pair in pairs]
        if any(gain.values for gain in gains):
            drawn = True
            errors = [0 if gain.error != gain.error else 100 * gain.error for gain in gains]
            axes[1].errorbar(places, [100 * gain.mean for gain in gains], errors, color=colour, marker=marker,
                             markersize=4, linewidth=1.2, capsize=2, label=method)  # fmt: skip
        paper = [(said(data, student, p / 100, method), said(data, student, p / 100, "none")) for p in places]
        if all(one is not None for pair in paper for one in pair):
            axes[0].plot(places, [one - base for one, base in paper], color=colour, marker=marker, markersize=4,
                         linewidth=1.2, label=method)  # fmt: skip
    if not drawn:
        plt.close(figure)
        return ""
    for axis, title in zip(axes, ("the paper", "ours (bars: standard error)"), strict=True):
        axis.axhline(0, color="black", linewidth=0.8)
        plain_axes(
            axis,
            "classes shared with the teacher, %",
            "gain over the student alone, points" if axis is axes[0] else "",
        )
        axis.set_title(f"{student}, {title}", fontsize=10)
        axis.set_xlim(max(places) + 5, min(places) - 5)
    one_legend(axes)
    return save_figure(figure, folder, f"fig05-{data}")
