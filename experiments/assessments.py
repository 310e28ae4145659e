"""Rows of scores of teachers on tasks, and how well scores foretell what students reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from preceptor.metrics import METRICS, needs
from preceptor.metrics.quality import pearson, spearman, weighted_kendall

KEY = ("data", "per_class", "task", "teacher", "teacher_task", "teacher_epochs")  # of a row of scores


def key_of(row: dict[str, Any]) -> tuple:
    """What tells a row from those of other teachers and tasks."""
    return tuple(row[name] for name in KEY)


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each teacher and task, with the scores of all its rows."""
    found: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        earlier = found.get(key_of(row), {}).get("scores", {})
        found[key_of(row)] = {**row, "scores": {**earlier, **row["scores"]}}
    return list(found.values())


def quality(rows: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Pearson of each task, and means over tasks of Pearson, Spearman, weighted tau and regret in points."""
    found: dict[str, Any] = {"pearson": {}, "spearman": {}, "tau": {}, "regret": {}}
    for task in sorted({row["task"] for row in rows}):
        some = [row for row in rows if row["task"] == task and metric in row["scores"]]
        scores, accuracies = [r["scores"][metric] for r in some], [r["accuracy"] for r in some]
        if len(some) < 3 or not np.isfinite(scores).all():
            continue
        found["pearson"][task] = pearson(scores, accuracies)
        found["spearman"][task] = spearman(scores, accuracies)
        found["tau"][task] = weighted_kendall(scores, accuracies)
        found["regret"][task] = 100 * (max(accuracies) - accuracies[int(np.argmax(scores))])
    means = {name: float(np.mean(list(values.values()))) for name, values in found.items() if values}
    return {"tasks": found["pearson"], **means}


def within(rows: list[dict[str, Any]], metric: str) -> dict[str, float]:
    """Mean Pearson over the tasks among the teachers of each architecture alone."""
    archs = dict.fromkeys(row["teacher"] for row in rows)
    found = {arch: quality([row for row in rows if row["teacher"] == arch], metric) for arch in archs}
    return {arch: measures["pearson"] for arch, measures in found.items() if "pearson" in measures}


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
