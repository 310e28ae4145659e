"""The figure that the paper lacks: the gain against the number of labelled images a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.book import (
    COLOURS,
    MARKERS,
    Book,
    Chooser,
    chooser,
    one_legend,
    plain_axes,
    save_figure,
    table,
)
from experiments.items import fig05
from experiments.jobs import Job, Scale, distillation
from experiments.schedule import MIXED_EARLY, PATIENT, PATIENT_EARLY, PLAIN
from preceptor.distill.losses import METHODS as METHOD_CLASSES
from preceptor.distill.losses.table import default_options
from preceptor.distill.recipe import RECIPES
from preceptor.pipeline.trials import FEW as FEW_OF_RUN

NAME, TITLE = "few", "Few labels: the gain against the number of images a class"
FALLING = "sinkhorn+probe, falling"  # where images are mixed for long: the default of others has a name
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe", "rkd", fig05.GENTLE_RKD, "refilled", "finetune")
COUNTS = {
    "cifar100": (25, 10, 50, 100, 250, None),
    "cub200": (10, 5, 15, None),
}  # the most wanted first; None: all
TASKS = {"cifar100": (0, 2, 5), "cub200": (0, 2, 4)}  # 100, 60 (50) and 0 % overlap
TIERS = {"cifar100": 10, "cub200": 25}
# How images are mixed: as `preceptor run` does, not at all, or all the time, which is what `--recipe patient` once was.
RUN = "run"
TOLD = {RUN: "mixed as by `run`", PLAIN: "plain", PATIENT: "mixed to the end"}
KINDS = tuple(TOLD)
STEADY = dict(RECIPES["patient"].method_options["sinkhorn+probe"])


def recipe_of(kind: str, count: int | None) -> str:
    """How students of so many images a class are trained."""
    if kind != RUN:
        return kind
    return PATIENT_EARLY if count is not None and count < FEW_OF_RUN else MIXED_EARLY


def jobs(scale: Scale) -> list[Job]:
    """Counts, kinds, seeds and tasks from the most wanted on; with all images the trainings are Fig. 5's."""
    found = []
    for data, counts in COUNTS.items():
        for place, count in enumerate(scale.few(counts)):
            for kind in (RUN, PLAIN):
                for seed in scale.seeds:
                    for task in scale.few(TASKS[data]):
                        found += setting(scale, data, count, task, seed, TIERS[data] + place, kind)
    return found


def _former(scale: Scale) -> list[Job]:
    """Of these there are rows, and no more are planned."""
    return [
        job
        for data, counts in COUNTS.items()
        for count in scale.few(counts)
        for seed in scale.seeds
        for task in scale.few(TASKS[data])
        for job in setting(scale, data, count, task, seed, 0, PATIENT)
    ]


def setting(
    scale: Scale, data: str, count: int | None, task: int, seed: int, tier: int, kind: str = PLAIN
) -> list[Job]:
    """All methods for one count, task and seed."""
    if count is None and kind != PLAIN:
        return fig05.mixed(scale, task, seed) if (kind, data) == (RUN, "cifar100") else []
    student, teacher = fig05.STUDENTS[data][0], fig05.TEACHERS[data]
    known = [] if count is not None else fig05.setting(scale, data, student, task, seed)
    few = None if count is None else scale.count(data, count)
    recipe = recipe_of(kind, count)
    found = [job for job in known if job.name in METHODS]
    for name in named(kind):
        if any(job.name == name for job in known):
            continue
        method, options, variant = _method(name, recipe)
        network = teacher if method == "finetune" else student
        found.append(distillation(scale, NAME, data, network, method, teacher, task, seed, options, variant=variant,
                                  per_class=few, tier=tier, recipe=recipe))  # fmt: skip
    return found


def named(kind: str) -> tuple[str, ...]:
    """The lines of a kind's tables; a teacher that is fine-tuned has a recipe of its own."""
    return {PLAIN: METHODS, RUN: METHODS[:-1], PATIENT: (*METHODS[:-1], FALLING)}[kind]


def _method(name: str, recipe: str) -> tuple[str, dict[str, Any] | None, str | None]:
    """Method, options and variant of a line of the table; the product's recipe may have options of its own."""
    if name == fig05.GENTLE_RKD:
        return "rkd", fig05.GENTLE, name
    if name == FALLING:
        return "sinkhorn+probe", _defaults("sinkhorn+probe", STEADY), name
    steady = name == "sinkhorn+probe" and recipe in (PATIENT, PATIENT_EARLY)
    return name, STEADY if steady else None, None


def _defaults(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The method's defaults of these options, spelled out."""
    return {key: default_options(METHOD_CLASSES[method])[key] for key in options}


def of_line(choose: Chooser, kind: str, name: str, count: int | None, **where: Any) -> list[Job]:
    """The jobs of a cell of the tables."""
    recipe = recipe_of(kind, count)
    if count is None:
        name = fig05.named(name, recipe)
    return choose(**where, per_class=count, name=name, recipe=recipe)


def section(book: Book, folder: Path) -> str:
    """A table for each overlap and kind, and the figures."""
    scale = book.scale_of(NAME)
    planned = jobs(scale)
    choose = chooser([*planned, *_former(scale)])
    parts = [
        "Accuracy in percent. The images a class are drawn anew for each seed; the teacher has all of its own. "
        "Batches and epochs follow the rule of `experiments/schedule.py`: the largest batch of 256, 128, 64 that "
        "leaves 39 steps an epoch, and at least 4,000 steps. `finetune` trains the teacher's own network, which is "
        "larger than the student, under a new classifier: the upper reference, not in the figure. `plain`: the "
        f"training of Fig. 5, but for that rule. {TOLD[RUN]}: as `preceptor run` mixes images for everybody: under "
        f"{FEW_OF_RUN} a class until three quarters of three times the steps, with more in the first half of the steps "
        "of `plain`; in the former case `sinkhorn+probe` has the setting of `--recipe patient`. Steps and rates are "
        "those of this rule, longer than `run`'s own. Mixed to the end: what the patient recipe was before, by which "
        "students alone do worse; `falling` is `sinkhorn+probe` with its usual setting. Not in the paper."
    ]
    parts.append(book.trained_again(NAME))
    for data in COUNTS:
        counts = [*sorted({job.per_class for job in planned if job.data == data and job.per_class}), None]
        for task in scale.few(TASKS[data]):
            for kind in KINDS:
                parts.append(_table(book, scale, choose, data, task, counts, kind))
        parts += [_draw(book, scale, choose, data, counts, folder, kind) for kind in KINDS]
    return "\n\n".join(part for part in parts if part)


def _table(
    book: Book, scale: Scale, choose: Chooser, data: str, task: int, counts: list[int | None], kind: str
) -> str:
    """Lines are methods, columns are counts; of what will not be run any more, only that which was."""
    cells = {
        (name, count): book.accuracy(of_line(choose, kind, name, count, data=data, task=task))
        for name in named(kind)
        for count in counts
        if setting(scale, data, count, task, 0, 0, kind)
    }
    names, shown = list(named(kind)), [c for c in counts if any(count == c for _, count in cells)]
    if kind == PATIENT:
        names = [n for n in names if any(cells[n, c].values for c in shown)]
        shown = [c for c in shown if any(cells[n, c].values for n in names)]
    if not names or not shown:
        return ""
    head = [f"{data}, {fig05.overlap_of(scale, data, task):.0%}, {TOLD[kind]}"]
    head += [str(scale.kind(data).per_class if count is None else count) for count in shown]
    return table(head, [[name, *(cells[name, count].shown() for count in shown)] for name in names])


def _draw(book: Book, scale: Scale, choose: Chooser, data: str, counts: list, folder: Path, kind: str) -> str:
    tasks = scale.few(TASKS[data])
    figure, axes = plt.subplots(1, len(tasks), figsize=(11, 3.4), sharey=True)
    drawn: set[int | None] = set()
    for axis, task in zip(axes, tasks, strict=True):
        shown = [n for n in named(kind)[1:] if n != "finetune"]  # it is far above
        for colour, marker, name in zip(COLOURS, MARKERS, shown, strict=False):
            points = []
            for count in counts:
                taught, alone = (
                    of_line(choose, kind, n, count, data=data, task=task) for n in (name, "none")
                )
                gain = book.gains(taught, alone)
                if gain.values:
                    drawn.add(count)
                    points.append((count or scale.kind(data).per_class, gain))
            if points:
                errors = [0 if g.error != g.error else 100 * g.error for _, g in points]
                axis.errorbar([c for c, _ in points], [100 * g.mean for _, g in points], errors, label=name,
                              color=colour, marker=marker, markersize=4, linewidth=1.2, capsize=2)  # fmt: skip
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_title(f"{fig05.overlap_of(scale, data, task):.0%} of classes shared", fontsize=10)
        plain_axes(
            axis, "labelled images a class", "gain over the student alone, points" if task == 0 else ""
        )
    if len(drawn) < 2:  # one count makes no line
        plt.close(figure)
        return ""
    ticks = [count or scale.kind(data).per_class for count in counts if count in drawn]
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xlim(0.8 * ticks[0], 1.25 * ticks[-1])
        axis.minorticks_off()
    one_legend(axes)
    picture = save_figure(figure, folder, f"few-{data}" if kind == PLAIN else f"few-{data}-{kind}")
    return (
        f"{data}, {TOLD[kind]}; gains over the student alone that was trained in the same way:\n\n{picture}"
    )
