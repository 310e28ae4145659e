"""The figure that the paper lacks: the gain against the number of labelled images a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.book import COLOURS, MARKERS, Book, chooser, one_legend, plain_axes, save_figure, table
from experiments.items import fig05
from experiments.jobs import Job, Scale, distillation
from experiments.schedule import PATIENT, PATIENT_EARLY, PLAIN
from preceptor.distill.losses import METHODS as METHOD_CLASSES
from preceptor.distill.losses.table import default_options
from preceptor.distill.recipe import RECIPES

NAME, TITLE = "few", "Few labels: the gain against the number of images a class"
FALLING = (
    "sinkhorn+probe, falling"  # in patient trainings: the default of others, `patient` has one of its own
)
EASED = "none, the last quarter not mixed"  # the student alone as well as we know, beside patient ones
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe", "rkd", fig05.GENTLE_RKD, "refilled", "finetune")
COUNTS = {
    "cifar100": (25, 10, 50, 100, 250, None),
    "cub200": (10, 5, 15, None),
}  # the most wanted first; None: all
TASKS = {"cifar100": (0, 2, 5), "cub200": (0, 2, 4)}  # 100, 60 (50) and 0 % overlap
TIERS = {"cifar100": 10, "cub200": 25}
KINDS = (PATIENT, PLAIN)
STEADY = dict(RECIPES[PATIENT].method_options["sinkhorn+probe"])


def jobs(scale: Scale) -> list[Job]:
    """Counts, recipes, seeds and tasks from the most wanted on; with all images the trainings are Fig. 5's."""
    found = []
    for data, counts in COUNTS.items():
        for place, count in enumerate(scale.few(counts)):
            for recipe in KINDS if count else (PLAIN,):
                for seed in scale.seeds:
                    for task in scale.few(TASKS[data]):
                        found += setting(scale, data, count, task, seed, TIERS[data] + place, recipe)
    return found


def setting(
    scale: Scale, data: str, count: int | None, task: int, seed: int, tier: int, recipe: str = PLAIN
) -> list[Job]:
    """All methods for one count, task and seed."""
    student, teacher = fig05.STUDENTS[data][0], fig05.TEACHERS[data]
    known = [] if count is not None else fig05.setting(scale, data, student, task, seed)
    few = None if count is None else scale.count(data, count)
    found = [job for job in known if job.name in METHODS]
    for name in named(recipe):
        if any(job.name == name for job in known):
            continue
        method, options, variant = _method(name, recipe)
        network = teacher if method == "finetune" else student
        found.append(distillation(scale, NAME, data, network, method, teacher, task, seed, options, variant=variant,
                                  per_class=few, tier=tier, recipe=recipe_of(name, recipe)))  # fmt: skip
    return found


def named(recipe: str) -> tuple[str, ...]:
    """The lines of a recipe's tables."""
    return METHODS if recipe == PLAIN else (METHODS[0], EASED, *METHODS[1:-1], FALLING, METHODS[-1])


def recipe_of(name: str, recipe: str) -> str:
    """How a line of a recipe's tables was trained."""
    return PATIENT_EARLY if name == EASED else recipe


def _method(name: str, recipe: str) -> tuple[str, dict[str, Any] | None, str | None]:
    """Method, options and variant of a line of the table; the product's recipe may have options of its own."""
    if name == fig05.GENTLE_RKD:
        return "rkd", fig05.GENTLE, name
    if name == FALLING:
        return "sinkhorn+probe", _defaults("sinkhorn+probe", STEADY), name
    if name == EASED:
        return "none", None, name
    return name, STEADY if (name, recipe) == ("sinkhorn+probe", PATIENT) else None, None


def _defaults(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The method's defaults of these options, spelled out."""
    return {key: default_options(METHOD_CLASSES[method])[key] for key in options}


def section(book: Book, folder: Path) -> str:
    """One table an overlap, and the figure."""
    scale = book.scale_of(NAME)
    some = jobs(scale)
    choose = chooser(some)
    parts = [
        "Accuracy in percent. The images a class are drawn anew for each seed; the teacher has all of its own. "
        "Batches and epochs follow the rule of `experiments/schedule.py`: the largest batch of 256, 128, 64 that "
        "leaves 39 steps an epoch, and at least 4,000 steps. `finetune` trains the teacher's own network, which is "
        "larger than the student, under a new classifier: the upper reference, not in the figure. `plain`: the "
        "training of Fig. 5, but for that rule. `patient`: images are mixed up, for everybody, and there are three "
        "times the steps; `sinkhorn+probe` then has the setting of `--recipe patient`, and `falling` is the one that "
        "it has otherwise. Students alone suffer more by images that are mixed to the very end than students of "
        f"teachers do: `{EASED}` is held beside them. Not in the paper."
    ]
    parts.append(book.trained_again(NAME))
    for data in COUNTS:
        counts = [*sorted({job.per_class for job in some if job.data == data and job.per_class}), None]
        for task in scale.few(TASKS[data]):
            for recipe in (PLAIN, PATIENT):
                of_recipe = counts if recipe == PLAIN else counts[:-1]
                head = [f"{data}, {fig05.overlap_of(scale, data, task):.0%}, {recipe}"]
                head += [str(scale.kind(data).per_class if count is None else count) for count in of_recipe]
                lines = [[name, *(book.accuracy(choose(data=data, task=task, per_class=count, name=name,
                                                       recipe=recipe_of(name, recipe))).shown() for count in of_recipe)]
                         for name in named(recipe)]  # fmt: skip
                parts.append(table(head, lines))
        parts += [_draw(book, scale, choose, data, counts, folder, recipe) for recipe in (PLAIN, PATIENT)]
    return "\n\n".join(part for part in parts if part)


def _draw(book: Book, scale: Scale, choose, data: str, counts: list, folder: Path, recipe: str) -> str:
    tasks = scale.few(TASKS[data])
    figure, axes = plt.subplots(1, len(tasks), figsize=(11, 3.4), sharey=True)
    drawn: set[int | None] = set()
    for axis, task in zip(axes, tasks, strict=True):
        shown = [n for n in named(recipe)[1:-1] if n != EASED]  # finetune is far above
        for colour, marker, name in zip(COLOURS, MARKERS, shown, strict=False):
            points = []
            for count in counts:
                where = {"data": data, "task": task, "per_class": count, "recipe": recipe}
                gain = book.gains(choose(**where, name=name), choose(**where, name="none"))
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
    return save_figure(figure, folder, f"few-{data}" if recipe == PLAIN else f"few-{data}-{recipe}")
