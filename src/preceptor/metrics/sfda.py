"""SFDA: how well a Fisher discriminant still tells the classes apart once the samples are made harder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, compact_labels
from preceptor.metrics.linear_algebra import Cholesky
from preceptor.metrics.scatter import BLOCK, Scatter, largest_eigenvalue, membership, scatter, working_type

RATE = 5.0  # a of the paper in lambda = exp(-a sigma)
SMALLEST = 1e-10  # of lambda, as features with a large spread would leave no regularisation at all
SURE = 1e-9  # a sample whose log p(y | x) is closer to 0 stays where it is
SCORED = 512  # rows scored at a time; small enough for their centred copy to stay in the cache
SMALLEST_SINGLE = 1e-6  # of the largest eigenvalue, where products are taken in float32


@entry()
def sfda(*, features: Any, labels: Any, **_unused: Any) -> float:
    """Self-challenging Fisher discriminant analysis.

    Shao et al., Not all models are equal: predicting model transferability in a self-challenging Fisher
    space, ECCV 2022. With S_W the within-class covariance, sigma its largest eigenvalue and pi_c, m_c the
    share and the mean of class c::

        lambda  = exp(-5 sigma)        S = (1 - lambda) S_W + lambda tr(S_W)/d I
        delta_c(x) = m_c^T S^-1 x - 1/2 m_c^T S^-1 m_c + log pi_c        p(c | x) = softmax_c delta_c(x)

    Confidential mixing then pulls each sample towards the mean of the other classes' means, the more so the
    less sure its own class was, x' = p x + (1 - p) o_c with p = p(y | x); the discriminant is fitted once
    more on the x', with the same lambda, and ::

        SFDA = 1/N sum_n log p'(y_n | x'_n)

    At most 0. One Cholesky factor for each of the two fits, none for each class. lambda is at least 1e-10 and
    1e-10 of the mean total variance is added to S (1e-6 of the largest eigenvalue where products are taken in
    float32), so that N < d and classes of equal samples work. The score depends on the scale of the features
    through lambda, as in the paper. A single class scores 0, constant features the entropy of the classes,
    negated.

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
    means, others = moments.class_means, _means_of_others(moments.class_means)
    within = moments.covariance - _weighted_outer(means, moments.counts)
    strength = max(float(np.exp(-RATE * largest_eigenvalue(within))), SMALLEST)
    jitter = _jitter(values, moments)
    first = _discriminant(within, means, log_shares, strength, jitter, moments.dimensions)

    own_log = np.concatenate(
        [
            _log_probability(block, indices[rows], first)
            for rows, block in _blocks(values, moments, size=SCORED)
        ]
    )
    unsure = np.flatnonzero(own_log < -SURE)
    if not len(unsure):  # no sample moves, so the second fit is the first
        return float(own_log.mean())
    surety = np.exp(own_log).astype(working_type(values))[:, None]  # p(y | x), (N, 1)
    within, means = _mixed_moments(values, indices, moments, within, surety, others, unsure)
    second = _discriminant(within, means, log_shares, strength, jitter, moments.dimensions)
    total = 0.0
    for rows, block in _blocks(values, moments, size=SCORED):
        mixed = _mix(block, surety[rows], others, indices[rows])
        total += float(_log_probability(mixed, indices[rows], second).sum())
    return total / len(values)


def _mixed_moments(
    values: Array,
    indices: Array,
    moments: Scatter,
    within: Array,
    surety: Array,
    others: Array,
    unsure: Array,
) -> tuple[Array, Array]:
    """Within-class covariance (r, r) and class means (C, r) once the samples are mixed.

    Where few samples move, what they added to the old covariance is replaced; else all are added up anew.
    """
    few = len(unsure) < 0.4 * len(values)
    chosen = unsure if few else np.arange(len(values))
    means = moments.class_means.astype(surety.dtype)
    total = within * len(values) if few else np.zeros_like(within)
    sums = np.zeros(means.shape)
    for rows, block in _blocks(values, moments, chosen):
        own = indices[rows]
        # Around the first class means, which are close by; the difference is taken out below.
        shifted = _mix(block, surety[rows], others, own) - means[own]
        total += shifted.T @ shifted
        before = block - means[own]
        if few:
            total -= before.T @ before
        sums += membership(own, len(means), surety.dtype) @ (shifted - before)
    drift = sums / moments.counts[:, None]
    return total / len(values) - _weighted_outer(drift, moments.counts), moments.class_means + drift


def _blocks(
    values: Array, moments: Scatter, chosen: Array | None = None, size: int = BLOCK
) -> Iterator[tuple[Any, Array]]:
    """Row numbers (or a slice) and the centred values there, a block at a time; of all rows or the chosen."""
    mean = moments.mean.astype(working_type(values))
    for start in range(0, len(values) if chosen is None else len(chosen), size):
        rows = slice(start, start + size) if chosen is None else chosen[start : start + size]
        yield rows, values[rows] - mean


def _mix(rows: Array, surety: Array, others: Array, own: Array) -> Array:
    """The confidential mixing p x + (1 - p) o."""
    away = others.astype(rows.dtype)[own]
    return away + surety * (rows - away)


def _means_of_others(means: Array) -> Array:
    """For each class the mean of the other classes' means, o_c, (C, r)."""
    return (means.sum(axis=0) - means) / (len(means) - 1)


def _weighted_outer(means: Array, counts: Array) -> Array:
    """The sum over the classes of pi_c m_c m_c^T, (r, r)."""
    weighted = means * np.sqrt(counts / counts.sum())[:, None]
    return weighted.T @ weighted


def _jitter(values: Array, moments: Scatter) -> float:
    """What is added to the diagonal: above the rounding errors of the products, far below what matters."""
    if working_type(values) == np.float64:
        return SMALLEST * moments.total_variance / moments.dimensions
    return SMALLEST_SINGLE * float(moments.leading[0][0])


def _discriminant(
    within: Array, means: Array, log_shares: Array, strength: float, jitter: float, dimensions: int
) -> tuple[Array, Array]:
    """Coefficients (C, r) and intercepts (C,) of the discriminant functions."""
    shrunk = (1 - strength) * within
    shrunk[np.diag_indices_from(shrunk)] += strength * max(np.trace(within), 0.0) / dimensions + jitter
    coefficients = Cholesky.of(shrunk).solve(means.T.copy()).T
    return coefficients, log_shares - 0.5 * (coefficients * means).sum(axis=1)


def _log_probability(rows: Array, own: Array, discriminant: tuple[Array, Array]) -> Array:
    """The logarithms of p(y | x) of the samples' own classes, (n,)."""
    coefficients, intercepts = discriminant
    scores = (rows @ coefficients.T.astype(rows.dtype)).astype(np.float64) + intercepts
    scores -= scores.max(axis=1, keepdims=True)
    return scores[np.arange(len(rows)), own] - np.log(np.exp(scores).sum(axis=1))
