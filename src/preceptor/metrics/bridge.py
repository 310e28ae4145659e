"""What the teacher's predictions say about the task's labels once transport has carried them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from preceptor.core import PreceptorError
from preceptor.metrics.class_costs import class_costs, complete_labels
from preceptor.metrics.inputs import Array, as_labels, as_matrix
from preceptor.metrics.sinkhorn import EPSILON, TEMPERATURE


def bridge(*, features: Any, labels: Any, logits: Any, classifier: Any, **options: Any) -> float:
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
        classifier: (C_T, d) rows of the teacher's last layer.
        **options: those of `bridge_values`.
    """
    return float(
        bridge_values(
            features=features, labels=labels, logits=logits, classifier=classifier, **options
        ).mean()
    )


def bridge_values(
    *,
    features: Any,
    labels: Any,
    logits: Any,
    classifier: Any = None,
    centers: Any = None,
    epsilon: float = EPSILON,
    temperature: float = TEMPERATURE,
    normalize: bool = True,
    center: bool = True,
    student_classes: Sequence[str] | None = None,
    **_unused: Any,
) -> Array:
    """The parts whose mean is `bridge`: log q_i(y_i) of each sample, (N,).

    Args:
        features: (N, d), as for `bridge`.
        labels: (N,)
        logits: (N, C_T)
        classifier: (C_T, d)
        centers: (C_T, d) centres of the teacher's classes; where they are given they replace the rows.
        epsilon: weight of the entropy: how widely a teacher class spreads over the task's.
        temperature: of the teacher's softmax.
        normalize: put both sides' centres on the unit sphere.
        center: subtract each side's mean centre first, as in `sinkhorn_assessment`.
        student_classes: names for the error that a class without samples raises; they also set C_S.
    """
    if not (temperature > 0 and epsilon > 0):
        raise PreceptorError(f"temperature is {temperature}, epsilon {epsilon}; expected positive numbers")
    features = as_matrix(features, "features")
    logits = as_matrix(logits, "logits", rows=len(features))
    labels = complete_labels(as_labels(labels, len(features)), student_classes)
    classes = int(labels.max()) + 1
    cost = class_costs(features, labels, classes, classifier, centers, logits.shape[1], normalize, center)
    spread = torch.log_softmax(-cost / epsilon, dim=1)  # (C_T, C_S), log of T_mn / p_m
    values = np.empty(len(labels))
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        predicted = torch.log_softmax(torch.from_numpy(logits[rows]).double() / temperature, dim=1)
        values[rows] = torch.logsumexp(predicted + spread[:, label], dim=1).numpy()
    return values
