"""One metric on one teacher's tensors: a score, or the reason why there is none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, needs
from preceptor.metrics.bridge import bridge_values
from preceptor.metrics.sinkhorn import sinkhorn_assessment, sinkhorn_between
from preceptor.rank.journal import Entry
from preceptor.rank.students import STUDENT_METRICS

Array = np.ndarray
Arguments = Mapping[str, Any]  # arrays or None: features, labels, logits, classifier, centers

PAIRS = 8  # class pairs kept for a row
MODEST = 40_000  # entries of a cost matrix that is kept for reports


def lacking(metric: str, arguments: Arguments) -> str | None:
    """What the metric needs and the teacher has not, in words; None where nothing is lacking."""
    absent = [need for need in needs(metric) if need != "student_logits" and arguments.get(need) is None]
    return f"needs {' and '.join(absent)}, which this teacher does not have" if absent else None


def score(metric: str, arguments: Arguments, options: Mapping[str, Any]) -> float:
    """The metric's value; raises where it is not a number."""
    return finite(METRICS[metric](**arguments, **options))


def finite(value: float) -> float:
    """The value, unless it is no number."""
    if not math.isfinite(value):
        raise PreceptorError(f"gave {float(value)} instead of a score")
    return float(value)


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
    student_logits: Callable[[], Array],
) -> None:
    """Add one metric to the entry: its score, or the reason why there is none.

    Args:
        metric: its name in `METRICS`.
        arguments: the teacher's tensors.
        options: keyword arguments for this metric.
        entry: takes score, seconds, details or reason.
        arrays: takes what only leaders need: scores of each instance, cost matrix, mean plan.
        names: the teacher's classes and the task's.
        student_logits: trains the student of a metric that needs one, and gives its logits (N, C_S).
    """
    reason = lacking(metric, arguments)
    if reason:
        entry.reasons[metric] = reason
        return
    start = time.perf_counter()
    try:
        if metric == "sinkhorn":
            entry.scores[metric] = _sinkhorn(arguments, options, entry, arrays, names)
        elif metric == "bridge":
            values = bridge_values(**arguments, student_classes=names[1], **options)
            entry.scores[metric] = finite(float(values.mean()))
            arrays[f"instance_scores {metric}"] = values.astype(np.float32)
        elif metric in STUDENT_METRICS:
            assessment = sinkhorn_between(
                **arguments, student_logits=student_logits(), student_classes=names[1], **options
            )
            entry.scores[metric] = finite(assessment.score)
            arrays[f"instance_scores {metric}"] = -assessment.instance_values.astype(np.float32)
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
    assessment = sinkhorn_assessment(**arguments, student_classes=names[1], **options)
    value = finite(assessment.score)
    entry.details["probe_accuracy"] = assessment.probe_accuracy
    entry.details["transport_cost"] = assessment.transport_cost
    entry.details["converged"] = assessment.converged
    entry.details["class_pairs"] = [
        {"teacher": pair.teacher, "task": pair.student, "share": pair.share, "cost": pair.cost}
        for pair in assessment.pairs(*names, top=PAIRS)
    ]
    arrays["instance_scores sinkhorn"] = -assessment.instance_values.astype(np.float32)
    if assessment.cost.size <= MODEST:
        arrays["cost"] = assessment.cost.astype(np.float32)
        arrays["plan"] = assessment.plan.astype(np.float32)
    return value
