"""Fig. 5 once more, with mixed images: the teacher is asked about ones that it does not know by heart."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book, chooser, table
from experiments.items import fig05
from experiments.jobs import Job, Scale, distillation
from experiments.schedule import LIGHT, MIXED

NAME, TITLE = "mixed", "Fig. 5 once more, with mixed images"
DATA, STUDENT = "cifar100", fig05.STUDENTS["cifar100"][0]
METHODS = ("none", "sinkhorn", "sinkhorn+probe")
RECIPES, TIER = (LIGHT, MIXED), 9


def jobs(scale: Scale) -> list[Job]:
    """The student alone and its two best teachings at every overlap."""
    return [
        distillation(
            scale, NAME, DATA, STUDENT, method, fig05.TEACHERS[DATA], task, seed, tier=TIER, recipe=recipe
        )
        for recipe in RECIPES
        for seed in scale.seeds
        for task in scale.tasks(DATA)
        for method in METHODS
    ]


def section(book: Book, folder: Path) -> str:
    """One table."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    tasks = scale.tasks(DATA)
    parts = ["Accuracy in percent, test images. Not in the paper."]
    for recipe in RECIPES:
        lines = [
            [name, *(book.accuracy(choose(task=task, name=name, recipe=recipe)).shown() for task in tasks)]
            for name in METHODS
        ]
        head = [f"{STUDENT}, {recipe}", *(f"{fig05.overlap_of(scale, DATA, task):.0%}" for task in tasks)]
        parts.append(table(head, lines))
    return "\n\n".join(parts)
