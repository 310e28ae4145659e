"""One metric on one teacher's tensors: a score, or the reason why there is none."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, needs, sinkhorn_assessment
from preceptor.rank.journal import Entry

Array = np.ndarray
Arguments = Mapping[str, Array | None]  # features, labels, logits, classifier, centers

PAIRS = 8  # class pairs kept for a row
MODEST = 40_000  # entries of a cost matrix that is kept for reports


def lacking(metric: str, arguments: Arguments) -> str | None:
    """What the metric needs and the teacher has not, in words; None where nothing is lacking."""
    absent = [need for need in needs(metric) if arguments.get(need) is None]
    return f"needs {' and '.join(absent)}, which this teacher does not have" if absent else None


def score(metric: str, arguments: Arguments, options: Mapping[str, Any]) -> float:
    """The metric's value; raises where it is not a number."""
    value = float(METRICS[metric](**arguments, **options))
    if not math.isfinite(value):
        raise PreceptorError(f"gave {value} instead of a score")
    return value


def take(arguments: Arguments, rows: Array) -> Arguments:
    """The same teacher on some of the instances."""
    per_instance = ("features", "logits", "labels")
    return {
        name: value[rows] if name in per_instance and value is not None else value
        for name, value in arguments.items()
    }


def measure(
    metric: str,
    arguments: Arguments,
    options: Mapping[str, Any],
    entry: Entry,
    arrays: dict[str, Array],
    names: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Add one metric to the entry: its score, or the reason why there is none.

    Args:
        metric: its name in `METRICS`.
        arguments: the teacher's tensors.
        options: keyword arguments for this metric.
        entry: takes score, seconds, details or reason.
        arrays: takes what only leaders need: values of each instance, cost matrix, mean plan.
        names: the teacher's classes and the task's.
    """
    reason = lacking(metric, arguments)
    if reason:
        entry.reasons[metric] = reason
        return
    start = time.perf_counter()
    try:
        if metric == "sinkhorn":
            entry.scores[metric] = _sinkhorn(arguments, options, entry, arrays, names)
        else:
            entry.scores[metric] = score(metric, arguments, options)
    except PreceptorError as error:
        entry.reasons[metric] = str(error)
    entry.metric_seconds[metric] = time.perf_counter() - start


def _sinkhorn(
    arguments: Arguments,
    options: Mapping[str, Any],
    entry: Entry,
    arrays: dict[str, Array],
    names: tuple[Sequence[str], Sequence[str]],
) -> float:
    assessment = sinkhorn_assessment(**arguments, **options)
    value = float(assessment.score)
    if not math.isfinite(value):
        raise PreceptorError(f"gave {value} instead of a score")
    cost, plan = np.asarray(assessment.cost), np.asarray(assessment.plan)
    entry.details["probe_accuracy"] = float(assessment.probe_accuracy)
    entry.details["transport_cost"] = float(assessment.transport_cost)
    entry.details["class_pairs"] = class_pairs(plan, *names)
    arrays["instance_values"] = np.asarray(assessment.instance_values, dtype=np.float32)
    if cost.size <= MODEST:
        arrays["cost"], arrays["plan"] = cost.astype(np.float32), plan.astype(np.float32)
    return value


def class_pairs(plan: Array, teacher_classes: Sequence[str], task_classes: Sequence[str]) -> list[dict[str, Any]]:
    """Which teacher class feeds which of the task's: the greatest entries of the mean plan and their share of it."""
    total = float(plan.sum()) or 1.0
    largest = np.argsort(-plan, axis=None, kind="stable")[:PAIRS]
    return [
        {"teacher": teacher_classes[i], "task": task_classes[j], "share": float(plan[i, j]) / total}
        for i, j in zip(*np.unravel_index(largest, plan.shape), strict=True)
    ]
