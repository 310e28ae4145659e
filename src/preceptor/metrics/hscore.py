"""H-score with a shrunk covariance: how much of the features' variance lies between the classes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import as_matrix, compact_labels
from preceptor.metrics.linear_algebra import Cholesky
from preceptor.metrics.scatter import Scatter, scatter, working_type


@entry()
def hscore(*, features: Any, labels: Any, **_unused: Any) -> float:
    """Regularised H-score.

    Bao et al., An information-theoretic approach to transferability in task transfer learning, ICIP 2019,
    with the shrinkage of Ibrahim, Ponomareva and Mazumder, Newer is not always better: rethinking
    transferability metrics, their peculiarities, stability and performance, 2021. With S the covariance of
    the features, B that of the class means over the samples and alpha the coefficient of Ledoit and Wolf
    (2004)::

        S_alpha = (1 - alpha) S + alpha tr(S)/d I        H = tr( S_alpha^-1 (1 - alpha) B )

    Between 0 and C - 1. The shrinkage makes it well defined for N < d, where the plain score is C - 1 for
    whatever labels. Directions without variance add nothing; constant features score 0.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
    """
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    _, moments = scatter(features, indices, classes)
    if moments.total_variance == 0:
        return 0.0
    alpha = ledoit_wolf(moments)
    spread = (
        moments.class_means * np.sqrt(moments.counts / len(features))[:, None]
    )  # (C, r), B = spread^T spread
    target = moments.total_variance / moments.dimensions
    shrunk = (1 - alpha) * moments.covariance
    shrunk[np.diag_indices_from(shrunk)] += alpha * target
    if alpha > 1e-8:
        with suppress(np.linalg.LinAlgError):
            return float((1 - alpha) * (Cholesky.of(shrunk).half_solve(spread.T) ** 2).sum())
    # Hardly any shrinkage: the covariance may be singular; B lies in its range, and there it is inverted.
    values, vectors = np.linalg.eigh(shrunk)
    kept = values > (1e-10 if working_type(features) == np.float64 else 1e-6) * values[-1]
    return float((1 - alpha) * ((spread @ vectors[:, kept]) ** 2 / values[kept]).sum())


def ledoit_wolf(moments: Scatter) -> float:
    """The shrinkage coefficient of Ledoit and Wolf, A well-conditioned estimator …, 2004, Sec. 3.3."""
    samples, dimensions = len(moments.energies), moments.dimensions
    squares = float((moments.covariance**2).sum())
    distance = squares - moments.total_variance**2 / dimensions  # ||S - m I||^2
    noise = (float((moments.energies**2).mean()) - squares) / samples
    if distance <= 1e-14 * squares or noise <= 0:
        return 0.0
    return min(noise / distance, 1.0)
