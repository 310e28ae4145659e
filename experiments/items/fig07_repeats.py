"""How much of Fig. 7 can be foretold at all: what students reached, held against a second training of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.assessments import mean_agreement, repeatability
from experiments.book import Book
from experiments.jobs import Job
from preceptor.wording import counted


def repeats(book: Book, lines: list[list[Job]]) -> dict[int, np.ndarray]:
    """(2, teachers) of the last two trainings of each task all of whose students have them, be it from another seed.

    `lines` are the students of each task and seed in the order of their teachers, the one without last. A training in
    which a student diverged does not count.
    """
    found: dict[int, list[tuple[float, ...]]] = {}
    for *taught, _ in lines:
        accuracies = [[row["accuracy"] for row in book.trainings(job)] for job in taught]
        whole = [one for one in zip(*accuracies, strict=False) if None not in one]
        found.setdefault(taught[0].task, []).extend(whole)
    return {task: np.array(some[-2:]) for task, some in sorted(found.items()) if len(some) > 1}


def section(book: Book, lines: list[list[Job]], rows: list[dict[str, Any]], shown: tuple[str, ...]) -> str:
    """The agreement of two trainings, what that leaves to a metric, and metrics against the mean of both."""
    twice = repeats(book, lines)
    if not twice or not rows:
        return ""
    first, second = zip(*twice.values(), strict=True)
    held = repeatability(first, second)
    anew = len({job.seed for line in lines for job in line}) == 1
    how = "teachers and students were all trained anew" if anew else "students came from another seed"
    text = (
        f"How much of it can be foretold: on {counted(len(twice), 'task')} {how}, and what the two trainings of a "
        f"student reached has a Pearson correlation of {held['low']:.2f} to {held['high']:.2f}, {held['mean']:.2f} in "
        f"the mean. By that reliability even a perfect metric can be expected to have about {held['ceiling']:.2f} "
        f"against one training and {held['of_both']:.2f} against the mean of the two."
    )
    if not anew:
        return text  # the table above is already of the mean
    teachers = [(job.teacher.arch, job.teacher.task) for job in lines[0][:-1]]
    metrics = {name: _against_mean(twice, teachers, rows, name) for name in rows[0]["scores"]}
    ranked = sorted(metrics, key=lambda name: -metrics[name]["pearson"])
    told = ", ".join(f"`{name}` {metrics[name]['pearson']:.2f}" for name in ranked)
    regrets = ", ".join(f"`{name}` {metrics[name]['regret']:.2f}" for name in shown)
    return f"{text} Against that mean (scores are of the second teachers): {told}. Regrets: {regrets}."


def _against_mean(
    twice: dict[int, np.ndarray], teachers: list[tuple[str, int]], rows: list[dict[str, Any]], metric: str
) -> dict[str, float]:
    """Agreement of a metric with the mean of both trainings."""
    scores = {(row["task"], row["teacher"], row["teacher_task"]): row["scores"][metric] for row in rows}
    return mean_agreement(
        ([scores[task, *teacher] for teacher in teachers], both.mean(axis=0).tolist())
        for task, both in twice.items()
    )
