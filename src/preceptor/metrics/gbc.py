"""GBC: how much the classes, as Gaussians in the teacher's feature space, overlap."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from preceptor.core import PreceptorError
from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, compact_labels
from preceptor.metrics.scatter import membership, scatter

DIMENSIONS = 64  # of the principal subspace, as in the paper


@entry()
def gbc(
    *,
    features: Any,
    labels: Any,
    covariance: Literal["spherical", "diagonal"] = "spherical",
    **_unused: Any,
) -> float:
    """Pándy et al., Transferability estimation using Bhattacharyya class separability, CVPR 2022.

    Features are projected on their 64 leading principal axes, each class becomes a Gaussian N(m_c, S_c) with
    a spherical or diagonal covariance, and with S = (S_i + S_j) / 2::

        D_ij = 1/8 (m_i - m_j)^T S^-1 (m_i - m_j) + 1/2 log( det S / sqrt(det S_i det S_j) )
        GBC  = - sum_{i != j} exp(-D_ij)

    From -C(C-1) (all classes alike) to 0. A class with one sample has no variance of its own: it takes the
    mean within-class variance, or the total one where no class has more. Variances are kept above 1e-6 of the
    mean total variance, so that classes of equal samples stay Gaussians.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        covariance: one variance for each class, or one for each class and axis.
    """
    if covariance not in ("spherical", "diagonal"):
        raise PreceptorError(f"covariance is {covariance!r}; expected 'spherical' or 'diagonal'")
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    if moments.total_variance == 0:
        return -float(classes * (classes - 1))
    projected = moments.projected(values)[:, :DIMENSIONS]  # (N, k)
    members = membership(indices, classes)
    means = members @ projected / moments.counts[:, None]
    squares = members @ ((projected - means[indices]) ** 2)
    variances = _variances(squares, moments.counts, float(projected.var(axis=0).mean()))
    if covariance == "spherical":
        variances = np.repeat(variances.mean(axis=1, keepdims=True), variances.shape[1], axis=1)
    overlap = np.exp(-_bhattacharyya(means, variances))
    return -float(overlap.sum() - np.trace(overlap))


def _variances(squares: Array, counts: Array, total: float) -> Array:
    """Class variances (C, k), unbiased; single samples take the pooled one."""
    repeated = counts > 1
    variances = squares / np.maximum(counts - 1, 1)[:, None]
    pooled = squares.sum(axis=0) / max(int((counts - 1).sum()), 1)
    variances[~repeated] = pooled if repeated.any() else total
    return np.maximum(variances, 1e-6 * total)


def _bhattacharyya(means: Array, variances: Array) -> Array:
    """Distances (C, C) between Gaussians with diagonal covariances."""
    logs = np.log(variances).sum(axis=1)
    distances = np.empty((len(means), len(means)))
    for row, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        middle = (variances + variance) / 2  # (C, k)
        apart = ((means - mean) ** 2 / middle).sum(axis=1) / 8
        distances[row] = apart + (np.log(middle).sum(axis=1) - (logs + logs[row]) / 2) / 2
    return distances
