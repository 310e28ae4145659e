"""The paper's metric (Sec. 5): how far a teacher's predictions have to travel to become a student's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.metrics.class_costs import paired_classes
from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, as_tensor, check_positive
from preceptor.metrics.linear_probe import STRENGTH, fit_probe, prepare
from preceptor.metrics.scatter import scatter
from preceptor.ot import SinkhornWarning
from preceptor.ot import sinkhorn as solve

EPSILON, TEMPERATURE = 0.1, 3.0


class ClassPair(NamedTuple):
    """A class of the teacher that feeds one of the student's, and how."""

    teacher: str
    student: str
    share: float  # of the student class's mass that comes from the teacher class
    cost: float


@dataclass(frozen=True)
class Assessment:
    """What the metric found out about one teacher."""

    score: float  # minus the mean of `instance_values`: higher is better
    instance_values: Array  # (N,) entropic values S_epsilon of Eq. (5), entropy and all; they can be negative
    transport_cost: float  # mean <T, M>, the part of the mean value that is transport
    cost: Array  # (C_T, C_S) M of Eq. (7)
    plan: Array  # (C_T, C_S) mean of the N transport plans; it sums to 1
    converged: float  # share of the N problems that reached the tolerance
    probe_accuracy: float | None  # on the samples the probe was fitted to; None where a student was given

    def pairs(
        self, teacher_classes: Sequence[str], student_classes: Sequence[str], top: int | None = 10
    ) -> tuple[ClassPair, ...]:
        """The teacher class that gives most to each student class, the most one-sided matches first.

        Args:
            teacher_classes: C_T names.
            student_classes: C_S names.
            top: how many pairs at most; None for one for each student class.
        """
        if (len(teacher_classes), len(student_classes)) != self.plan.shape:
            raise PreceptorError(
                f"{len(teacher_classes)} teacher and {len(student_classes)} student class names came; "
                f"expected {self.plan.shape[0]} and {self.plan.shape[1]}"
            )
        shares = self.plan / np.maximum(self.plan.sum(axis=0), np.finfo(np.float64).tiny)
        best = shares.argmax(axis=0)
        found = [
            ClassPair(teacher_classes[m], student_classes[n], float(shares[m, n]), float(self.cost[m, n]))
            for n, m in enumerate(best)
        ]
        return tuple(sorted(found, key=lambda pair: -pair.share)[:top])


@entry(paired_classes)
def sinkhorn_assessment(
    *,
    epsilon: float = EPSILON,
    temperature: float = TEMPERATURE,
    strength: float = STRENGTH,
    probe_tolerance: float = 0.01,
    tolerance: float = 1e-3,
    **teacher: Any,
) -> Assessment:
    """Fit a probe to the teacher's features and transport the teacher's predictions to the probe's.

    Args:
        epsilon: weight of the entropy.
        temperature: of both softmaxes.
        strength: of the probe's fit, scikit-learn's C; see `preceptor.metrics.linear_probe`.
        probe_tolerance: bound on the probe's loss above its minimum, as a share of it. 0.01 moved the score
            by up to 0.8 % in examples, most where it is near 0: of teachers that fit the task well.
        tolerance: L1 marginal error of the plans. The value is off by less than its square in practice, being
            stationary at the solution.
        **teacher: `features`, `labels`, `logits`, `classifier` or `centers`, and what else `paired_classes` takes.
    """
    check_positive(strength=strength, probe_tolerance=probe_tolerance)
    features, logits, labels, classes, cost = paired_classes(**teacher)
    values, moments = scatter(features, labels, classes)
    probe = fit_probe(prepare(values, moments), labels, strength=strength, tolerance=probe_tolerance)
    parts = _transport(logits, probe.logits.numpy(), cost, epsilon, temperature, tolerance)
    return Assessment(*parts, float((probe.logits.argmax(dim=1).numpy() == labels).mean()))


@entry(paired_classes)
def sinkhorn_between(
    *,
    student_logits: Any,
    epsilon: float = EPSILON,
    temperature: float = TEMPERATURE,
    tolerance: float = 1e-3,
    student_classes: Sequence[str] | None = None,
    **teacher: Any,
) -> Assessment:
    """Transport the teacher's predictions to those of a trained student instead of a probe's.

    With a student trained without the teacher this is Approximation I, with one distilled from the teacher
    Eq. (24) itself. Arguments as for `sinkhorn_assessment`.
    """
    student_logits = as_matrix(student_logits, "student_logits")
    names = student_classes or range(student_logits.shape[1])
    given = paired_classes(student_classes=names, **teacher)
    student_logits = as_matrix(student_logits, "student_logits", rows=len(given.features))
    parts = _transport(given.logits, student_logits, given.cost, epsilon, temperature, tolerance)
    return Assessment(*parts, None)


@entry(sinkhorn_assessment)
def sinkhorn(
    *, features: Any, labels: Any, logits: Any, classifier: Any = None, centers: Any = None, **options: Any
) -> float:
    """Minus the mean Sinkhorn distance between teacher and probe, Eq. (24) with Approximation II, Alg. 4.

    The number is the entropic value `<T, M> - epsilon H(T)`, negated. Options are those of
    `sinkhorn_assessment`, which gives the parts as well. Of `classifier` and `centers` one will do.
    """
    teacher = {"features": features, "labels": labels, "logits": logits}
    return sinkhorn_assessment(**teacher, classifier=classifier, centers=centers, **options).score


@entry(sinkhorn_between)
def sinkhorn_single(*, features: Any, labels: Any, logits: Any, student_logits: Any, **options: Any) -> float:
    """Approximation I: `student_logits` of one student, trained without any teacher, for all teachers."""
    given = {"features": features, "labels": labels, "logits": logits, "student_logits": student_logits}
    return sinkhorn_between(**given, **options).score


@entry(sinkhorn_between)
def sinkhorn_exact(*, features: Any, labels: Any, logits: Any, student_logits: Any, **options: Any) -> float:
    """Eq. (24): `student_logits` of a student that was distilled from this very teacher."""
    given = {"features": features, "labels": labels, "logits": logits, "student_logits": student_logits}
    return sinkhorn_between(**given, **options).score


def _transport(
    logits: Array, student_logits: Array, cost: Tensor, epsilon: float, temperature: float, tolerance: float
) -> tuple[float, Array, float, Array, Array, float]:
    """Score, values, mean transport cost, M, mean plan and the share that converged."""
    check_positive(epsilon=epsilon, temperature=temperature, tolerance=tolerance)
    # In the precision they came in: float32 has no room for large logits, nor for small differences of them.
    p, q = (torch.softmax(as_tensor(each) / temperature, dim=1).float() for each in (logits, student_logits))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SinkhornWarning)  # `converged` says it, for each assessment
        result = solve(p, q, cost.float(), epsilon=epsilon, tolerance=tolerance)
    values = result.value.double().numpy()
    plan = result.mean_plan().double()
    transport_cost = float((plan * cost).sum())
    share = float(result.converged.float().mean())
    return -float(values.mean()), values, transport_cost, cost.numpy(), plan.numpy(), share
