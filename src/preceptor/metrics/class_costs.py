"""How far each of the teacher's classes is from each of the student's, in the teacher's own embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.metrics.inputs import Array, as_matrix, class_sums


def complete_labels(labels: Array, names: Sequence[Any] | None) -> Array:
    """The labels, if every class has a sample; a class without one has no centre in Eq. (6)."""
    classes = int(labels.max()) + 1 if names is None else len(names)
    if labels.max() >= classes:
        raise PreceptorError(f"labels go up to {labels.max()}; expected less than {classes}, the class count")
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if len(absent):
        name = int(absent[0]) if names is None else names[int(absent[0])]
        raise PreceptorError(
            f"class {name!r} has no sample ({len(absent)} of {classes} classes have none), so it has no "
            f"centre; add samples of it or leave it out of the task"
        )
    return labels


def class_costs(
    features: Array,
    labels: Array,
    classes: int,
    classifier: Any,
    centers: Any,
    teacher_classes: int,
    normalize: bool,
    center: bool,
) -> Tensor:
    """M of Eq. (7), in float64, from the centres of Eq. (6) and of Eq. (8) or the teacher's own."""
    name = "classifier" if centers is None else "centers"
    teacher = as_matrix(
        classifier if centers is None else centers, name, rows=teacher_classes, columns=features.shape[1]
    ).astype(np.float64)
    counts = np.bincount(labels, minlength=classes)
    student = class_sums(features, labels, classes) / counts[:, None]  # Eq. (6)
    if center:
        teacher, student = teacher - teacher.mean(axis=0), student - student.mean(axis=0)
    if normalize:
        teacher, student = _unit_rows(teacher), _unit_rows(student)  # Eq. (8), and the student's side alike
    # The expanded square, in float64: a cost of zero comes out as 1e-8 at most, and the product is fast.
    squares = (teacher**2).sum(axis=1)[:, None] + (student**2).sum(axis=1) - 2 * teacher @ student.T
    return torch.from_numpy(np.sqrt(np.maximum(squares, 0)))  # Eq. (7)


def _unit_rows(points: Array) -> Array:
    """Rows divided by their norm; a zero row stays at the origin, 1 away from everything on the sphere."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(norms > 0, norms, 1)
