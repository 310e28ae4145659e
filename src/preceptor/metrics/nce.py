"""NCE: the negative conditional entropy of the task's labels given the teacher's hard predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, compact_labels


@entry()
def nce(*, logits: Any, labels: Any, **_unused: Any) -> float:
    """Tran, Nguyen and Hassner, Transferability and hardness of supervised classification tasks, ICCV 2019.

    With z = argmax of the teacher's logits and n the counts over the N samples::

        NCE = -H(Y | Z) = sum_yz n(y, z) / N log( n(y, z) / n(z) )

    In nats, from -log C (predictions say nothing about labels) to 0 (each source class holds one label).

    Args:
        logits: (N, C_T) of the teacher.
        labels: (N,) class indices of the task.
    """
    logits = as_matrix(logits, "logits")
    indices, classes = compact_labels(labels, len(logits))
    predictions = logits.argmax(axis=1)
    cells = np.bincount(indices * logits.shape[1] + predictions, minlength=classes * logits.shape[1])
    return negative_conditional_entropy(cells.reshape(classes, -1))


def negative_conditional_entropy(joint: Array) -> float:
    """-H(Y | Z) in nats of a joint table of masses (C, C_T), whatever its sum; empty cells add nothing."""
    mass_z = np.broadcast_to(joint.sum(axis=0), joint.shape)
    filled = joint > 0
    mass = joint[filled].astype(np.float64)
    return float((mass * np.log(mass / mass_z[filled])).sum() / mass.sum())
