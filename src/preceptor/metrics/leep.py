"""LEEP: the log expected empirical prediction of the task's labels from the teacher's soft predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, as_tensor, class_sums, compact_labels


@entry()
def leep(*, logits: Any, labels: Any, **_unused: Any) -> float:
    """Nguyen, Hassner, Seeger and Archambeau, LEEP: a new measure to evaluate transferability, ICML 2020.

    With theta_n the teacher's softmax for sample n, Eq. (1) and (2) of that paper::

        P(y, z) = 1/N sum_{n: y_n = y} theta_n(z)        P(y | z) = P(y, z) / P(z)
        LEEP    = 1/N sum_n log sum_z P(y_n | z) theta_n(z)

    At most 0. A source class that no sample gives any mass (its softmax underflows) has no P(y | z); it takes
    no part in either sum. On one-hot predictions LEEP equals NCE.

    Args:
        logits: (N, C_T) of the teacher.
        labels: (N,) class indices of the task.
    """
    logits = as_matrix(logits, "logits")
    indices, classes = compact_labels(labels, len(logits))
    probabilities = torch.softmax(as_tensor(logits), dim=1).numpy()
    return log_expected_prediction(probabilities, indices, classes)


def log_expected_prediction(probabilities: Array, indices: Array, classes: int) -> float:
    """LEEP of rows of probabilities (N, Z) over source classes or clusters, and compact labels (N,)."""
    joint = class_sums(probabilities, indices, classes)  # (C, Z), N P(y, z)
    mass = joint.sum(axis=0)
    conditional = np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)  # P(y | z)
    # A row's sum cannot vanish: its largest probability, at least 1/Z, meets P(y_n | z) >= that / N.
    rows = conditional.astype(probabilities.dtype)[indices]
    expected = np.einsum("nz,nz->n", rows, probabilities, dtype=np.float64)
    return float(np.log(expected).mean())
