"""What the teacher's predictions say about the task's labels once transport has carried them over."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from preceptor.metrics.class_costs import paired_classes
from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, check_positive
from preceptor.metrics.sinkhorn import EPSILON, TEMPERATURE


@entry(paired_classes)
def bridge_values(*, epsilon: float = EPSILON, temperature: float = TEMPERATURE, **teacher: Any) -> Array:
    """The parts whose mean is `bridge`: log q_i(y_i) of each sample, (N,).

    Args:
        epsilon: weight of the entropy: how widely a teacher class spreads over the task's.
        temperature: of the teacher's softmax.
        **teacher: `features`, `labels`, `logits`, `classifier` or `centers`, and what else `paired_classes` takes.
    """
    check_positive(epsilon=epsilon, temperature=temperature)
    given = paired_classes(**teacher)
    spread = torch.log_softmax(-given.cost / epsilon, dim=1)  # (C_T, C_S), log of T_mn / p_m
    values = np.empty(len(given.labels))
    for label in range(given.classes):
        rows = np.flatnonzero(given.labels == label)
        predicted = torch.log_softmax(torch.from_numpy(given.logits[rows]).double() / temperature, dim=1)
        values[rows] = torch.logsumexp(predicted + spread[:, label], dim=1).numpy()
    return values


@entry(bridge_values)
def bridge(
    *, features: Any, labels: Any, logits: Any, classifier: Any = None, centers: Any = None, **options: Any
) -> float:
    """The mean log-probability of the labels under the teacher's predictions, carried over to the task's classes.

    With p the teacher's prediction at temperature tau, M the costs of Eq. (7), and the student's side of Eq. (12)
    left free, the optimal plan has a closed form, and so have its column sums q::

        T_mn = p_m exp(-M_mn / epsilon) / sum_k exp(-M_mk / epsilon)        q_n = sum_m T_mn
        score = 1/N sum_i log q_i(y_i)

    q is where the transport term pulls a student that has no opinion of its own, so the score says how far that is
    the right direction. It is LEEP with a P(y | z) that is measured in the teacher's embedding and not counted, so
    source classes that only happen to meet a label are no merit. At most 0. Nothing is fitted but the class means.

    Args:
        features: (N, d) of the teacher on the student's training set.
        labels: (N,) of the student's classes; every class needs a sample, or it has no centre.
        logits: (N, C_T) of the teacher.
        classifier: (C_T, d) rows of the teacher's last layer; may be left out where `centers` are given.
        centers: (C_T, d) stored class centres of the teacher's data, which are taken first.
        **options: those of `bridge_values` and of `paired_classes`.
    """
    teacher = {"features": features, "labels": labels, "logits": logits}
    return float(bridge_values(**teacher, classifier=classifier, centers=centers, **options).mean())
