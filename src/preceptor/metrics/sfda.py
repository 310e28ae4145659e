"""SFDA: how well a regularised Fisher discriminant still tells the classes apart when samples are made harder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from preceptor.metrics.inputs import Array, as_matrix, class_sums, compact_labels
from preceptor.metrics.scatter import BLOCK, leading_eigenpairs, scatter, working_type

RATE = 5.0  # a of the paper in lambda = exp(-a sigma)
SMALLEST = 1e-10  # of lambda, as features with a large spread would leave no regularisation at all


def sfda(*, features: Any, labels: Any, **_unused: Any) -> float:
    """Self-challenging Fisher discriminant analysis.

    Shao et al., Not all models are equal: predicting model transferability in a self-challenging Fisher space,
    ECCV 2022. With S_W the within-class covariance, sigma its largest eigenvalue and pi_c, m_c the share and the
    mean of class c::

        lambda  = exp(-5 sigma)        S = (1 - lambda) S_W + lambda tr(S_W)/d I
        delta_c(x) = m_c^T S^-1 x - 1/2 m_c^T S^-1 m_c + log pi_c        p(c | x) = softmax_c delta_c(x)

    Confidential mixing then pulls each sample towards the mean of the other classes' means, the more so the less
    sure its own class was, x' = p x + (1 - p) o_c with p = p(y | x); the discriminant is fitted once more on the
    x', with the same lambda, and ::

        SFDA = 1/N sum_n log p'(y_n | x'_n)

    At most 0. One Cholesky factor for each of the two fits, none for each class. lambda is at least 1e-10 and
    1e-10 of the mean total variance is added to S (1e-6 where products are taken in float32), so that N < d and
    classes of equal samples work. The score depends on the scale of the features through lambda, as in the
    paper. A single class scores 0, constant features the entropy of the classes, negated.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
    """
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    log_shares = np.log(moments.counts / len(features))
    if classes == 1 or moments.total_variance == 0:
        return float(log_shares[indices].mean())
    kind = working_type(values)
    jitter = (SMALLEST if kind == np.float64 else 1e-6) * moments.total_variance / moments.dimensions
    means = moments.class_means
    within = moments.covariance - (means.T * (moments.counts / len(features))) @ means
    strength = max(float(np.exp(-RATE * leading_eigenpairs(within, 1)[0][0])), SMALLEST)
    first = _discriminant(within, means, log_shares, strength, jitter, moments.dimensions)
    others = (means.sum(axis=0) - means) / (classes - 1)  # o_c, (C, r)

    surety = np.empty((len(values), 1), dtype=kind)
    mixed_within = np.zeros_like(within)
    mixed_sums = np.zeros_like(means)
    pieces = [slice(start, start + BLOCK) for start in range(0, len(values), BLOCK)]
    for rows in pieces:
        block, own = values[rows] - moments.mean.astype(kind), indices[rows]
        surety[rows, 0] = np.exp(_log_probability(block, own, *first))
        shifted = _mix(block, surety[rows], others.astype(kind)[own]) - means.astype(kind)[own]
        mixed_within += shifted.T @ shifted
        mixed_sums += class_sums(shifted, own, classes)
    # Around the first class means, which are close by; the difference is taken out afterwards.
    drift = mixed_sums / moments.counts[:, None]
    mixed_within = mixed_within / len(values) - (drift.T * (moments.counts / len(values))) @ drift
    second = _discriminant(mixed_within, means + drift, log_shares, strength, jitter, moments.dimensions)
    total = 0.0
    for rows in pieces:
        block, own = values[rows] - moments.mean.astype(kind), indices[rows]
        total += float(_log_probability(_mix(block, surety[rows], others.astype(kind)[own]), own, *second).sum())
    return total / len(values)


def _mix(rows: Array, surety: Array, others: Array) -> Array:
    """p x + (1 - p) o, the confidential mixing."""
    return others + surety * (rows - others)


def _discriminant(
    within: Array, means: Array, log_shares: Array, strength: float, jitter: float, dimensions: int
) -> tuple[Array, Array]:
    """Coefficients (C, r) and intercepts (C,) of the discriminant functions."""
    shrunk = (1 - strength) * within
    shrunk[np.diag_indices_from(shrunk)] += strength * max(np.trace(within), 0.0) / dimensions + jitter
    factor = torch.linalg.cholesky(torch.from_numpy(shrunk))
    coefficients = torch.cholesky_solve(torch.from_numpy(means.T.copy()), factor).numpy().T
    return coefficients, log_shares - 0.5 * (coefficients * means).sum(axis=1)


def _log_probability(rows: Array, own: Array, coefficients: Array, intercepts: Array) -> Array:
    """log p(y | x) of the samples' own classes, (n,)."""
    scores = (rows @ coefficients.T.astype(rows.dtype)).astype(np.float64) + intercepts
    scores -= scores.max(axis=1, keepdims=True)
    return scores[np.arange(len(rows)), own] - np.log(np.exp(scores).sum(axis=1))
