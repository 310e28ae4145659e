"""Rows of scores of teachers on tasks, and how well scores foretell what students reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from preceptor.metrics import METRICS, needs
from preceptor.metrics.quality import pearson, spearman, top1_regret, weighted_kendall

KEY = ("data", "per_class", "task", "teacher", "teacher_task", "teacher_epochs")  # of a row of scores


def key_of(row: dict[str, Any]) -> tuple:
    """What tells a row from those of other teachers and tasks."""
    return tuple(row[name] for name in KEY)


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each teacher and task, with the scores of all its rows; of a teacher trained anew only the last's."""
    found: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        earlier = found.get(key_of(row), row)
        same = earlier.get("teacher_weights") == row.get("teacher_weights")
        found[key_of(row)] = {**row, "scores": {**(earlier["scores"] if same else {}), **row["scores"]}}
    return list(found.values())


def agreement(scores: Sequence[float], accuracies: Sequence[float]) -> dict[str, float]:
    """How well the scores of teachers foretell what their students reached, on one task.

    `regret` is in points of accuracy: what the teacher with the highest score loses against the best one.
    `preceptor.metrics.quality.top1_regret` is the same loss as a share of the best accuracy.
    """
    best = max(accuracies)
    return {
        "pearson": pearson(scores, accuracies),
        "spearman": spearman(scores, accuracies),
        "tau": weighted_kendall(scores, accuracies),
        "regret": 100 * best * top1_regret(scores, accuracies) if best else 0.0,
    }


def mean_agreement(pairs: Iterable[tuple[Sequence[float], Sequence[float]]]) -> dict[str, float]:
    """Its means over tasks, each given by its scores and accuracies; empty where there are none."""
    found = [agreement(scores, accuracies) for scores, accuracies in pairs]
    return {name: float(np.mean([one[name] for one in found])) for name in (found[0] if found else ())}


def quality(rows: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Pearson of each task, and means over tasks of Pearson, Spearman, weighted tau and regret in points."""
    pairs = {}
    for task in sorted({row["task"] for row in rows}):
        some = [row for row in rows if row["task"] == task and metric in row["scores"]]
        scores, accuracies = [r["scores"][metric] for r in some], [r["accuracy"] for r in some]
        if len(some) >= 3 and np.isfinite(scores).all():
            pairs[task] = scores, accuracies
    return {"tasks": {task: pearson(*pair) for task, pair in pairs.items()}, **mean_agreement(pairs.values())}


def within(rows: list[dict[str, Any]], metric: str) -> dict[str, float]:
    """Mean Pearson over the tasks among the teachers of each architecture alone."""
    archs = dict.fromkeys(row["teacher"] for row in rows)
    found = {arch: quality([row for row in rows if row["teacher"] == arch], metric) for arch in archs}
    return {arch: measures["pearson"] for arch, measures in found.items() if "pearson" in measures}


def repeatability(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> dict[str, float]:
    """How well what students reached agrees, task by task, with what they reach when all is trained once more.

    `ceiling` is what a perfect metric can be expected to reach against one training, and `of_both` against the mean of
    the two: the square root of the reliability, which for the mean is that of Spearman and Brown.
    """
    agreements = [pearson(one, other) for one, other in zip(first, second, strict=True)]
    mean = float(np.mean(agreements))
    whole = max(mean, 0.0)
    return {"mean": mean, "low": min(agreements), "high": max(agreements), "ceiling": whole**0.5,
            "of_both": (2 * whole / (1 + whole)) ** 0.5}  # fmt: skip


def judges() -> dict[str, Callable[..., float]]:
    """All metrics that need no trained student, the paper's also to the letter, and a reference."""
    found = {name: metric for name, metric in METRICS.items() if "student_logits" not in needs(name)}
    return {
        **found,
        "sinkhorn, not centred": partial(METRICS["sinkhorn"], center=False),
        "confidence": confidence,
    }


def confidence(*, logits: np.ndarray, **_unused: Any) -> float:
    """How sure the teacher is, minus the mean entropy of its predictions: what a metric should be better than."""
    log_p = log_softmax(logits.astype(np.float64), axis=1)
    return float((np.exp(log_p) * log_p).sum(axis=1).mean())
