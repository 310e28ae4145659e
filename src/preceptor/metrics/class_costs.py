"""How far each of the teacher's classes is from each of the student's, in the teacher's own embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.metrics.inputs import Array, as_centers, as_labels, as_matrix, class_sums
from preceptor.ot.cost import placed


class Paired(NamedTuple):
    """A teacher's outputs on a task, and how far its classes are from the task's."""

    features: Array  # (N, d)
    logits: Array  # (N, C_T)
    labels: Array  # (N,)
    classes: int  # C_S
    cost: Tensor  # (C_T, C_S) M of Eq. (7), in float64


def paired_classes(
    *,
    features: Any,
    labels: Any,
    logits: Any,
    classifier: Any = None,
    centers: Any = None,
    normalize: bool = True,
    center: bool = True,
    student_classes: Sequence[Any] | None = None,
    **_unused: Any,
) -> Paired:
    """Check a teacher's outputs and measure the costs between the two sets of classes.

    Args:
        features: (N, d) of the teacher on the student's training set.
        labels: (N,) of the student's classes; every class needs a sample, or it has no centre.
        logits: (N, C_T) of the teacher.
        classifier: (C_T, d) rows of the teacher's last layer; they stand for its class centres, Eq. (8).
        centers: (C_T, d) centres of the teacher's classes; where they are given they replace the rows, which may
            then be left out.
        normalize: put both sides' centres on the unit sphere: Eq. (6) and (8) taken literally mix a sphere with raw
            features.
        center: subtract each side's mean centre first. The paper does not; rectified features and classifier
            rows have means that lie apart, and their distance, the same for all pairs, drowns the rest
            (docs/metrics.md has the comparison).
        student_classes: names for the error that a class without samples raises; they also set C_S.
    """
    features = as_matrix(features, "features")
    logits = as_matrix(logits, "logits", rows=len(features))
    labels = as_labels(labels, len(features))
    classes = int(labels.max()) + 1 if student_classes is None else len(student_classes)
    _check_complete(labels, classes, student_classes)
    teacher = as_centers(classifier, centers, rows=logits.shape[1], columns=features.shape[1])
    counts = np.bincount(labels, minlength=classes)
    student = class_sums(features, labels, classes) / counts[:, None]  # Eq. (6)
    # Eq. (8), and the student's side alike. A zero row stays at the origin: its teacher is ranked, and last.
    theirs, ours = (
        placed(torch.from_numpy(points), "class centres", normalize, center, zero_rows="origin")
        for points in (teacher.astype(np.float64), student)
    )
    # The expanded square, in float64: a cost of zero comes out as 1e-8 at most, and the product is fast.
    squares = (theirs**2).sum(dim=1)[:, None] + (ours**2).sum(dim=1) - 2 * theirs @ ours.T
    return Paired(features, logits, labels, classes, squares.clamp_min(0).sqrt())  # Eq. (7)


def _check_complete(labels: Array, classes: int, names: Sequence[Any] | None) -> None:
    """Every class needs a sample: one without has no centre in Eq. (6)."""
    if labels.max() >= classes:
        raise PreceptorError(f"labels go up to {labels.max()}; expected less than {classes}, the class count")
    present = np.unique(labels)  # no table of all classes: a wild label would ask for a wild one
    if len(present) < classes:
        missing = int(np.flatnonzero(np.append(present, classes) != np.arange(len(present) + 1))[0])
        name = missing if names is None else names[missing]
        raise PreceptorError(
            f"class {name!r} has no sample ({classes - len(present)} of {classes} classes have none), so it has no "
            f"centre; add samples of it or leave it out of the task"
        )
