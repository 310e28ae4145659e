"""PARC: do samples that look alike to the teacher share a label, by the ranks of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, check_count, compact_labels
from preceptor.metrics.sampling import stratified_rows
from preceptor.metrics.scatter import row_hashes


@entry()
def parc(*, features: Any, labels: Any, max_samples: int = 500, **_unused: Any) -> float:
    """Pairwise annotation representation comparison.

    Bolya, Mittapalli and Hoffman, Scalable diverse model selection for accessible transfer learning, NeurIPS
    2021. With standardised features (each dimension to mean 0 and variance 1) and one-hot labels::

        D_X[i, j] = 1 - pearson(x_i, x_j)      D_Y[i, j] = 1 - pearson(y_i, y_j)
        PARC      = spearman( D_X, D_Y )  over the pairs i < j

    From -1 to 1 (the paper prints 100 times that). D_Y takes two values, so only the ranks of the pairs with
    equal labels are needed; equal distances share their mean rank. Above `max_samples` the pairs are those of
    a subset, each class with its share, chosen by a hash of the features (500 as in the paper's probe sets).

    A sample whose standardised features do not vary has no Pearson coefficient: 0 is taken. So with d = 1,
    constant features, a single class or no pair of equal labels, the score is 0.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        max_samples: how many samples are compared at most, about.
    """
    check_count(2, max_samples=max_samples)  # a pair
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    rows = stratified_rows(row_hashes(features), indices, classes, max_samples)
    chosen, indices = features[rows].astype(np.float64), indices[rows]
    similarity = _pearson(_standardized(chosen))
    first, second = np.triu_indices(len(rows), 1)
    # On a grid far coarser than rounding and far finer than any difference that matters: equal is equal.
    distances = np.round(1 - similarity[first, second], 10)
    return _spearman_with_binary(distances, indices[first] == indices[second])


def _standardized(features: Array) -> Array:
    centred = features - features.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    varies = spread > 1e-7 * np.abs(features).max(axis=0)
    return np.where(varies, centred, 0.0) / np.where(varies, spread, 1.0)


def _pearson(rows: Array) -> Array:
    """Correlations (n, n) between rows; 0 for a row that does not vary."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    varies = norms > 1e-12 * np.sqrt(rows.shape[1])
    units = np.where(varies, centred, 0.0) / np.where(varies, norms, 1.0)
    return units @ units.T


def _spearman_with_binary(distances: Array, equal: Array) -> float:
    """Spearman's coefficient of distances with a variable that is 0 for `equal` pairs and 1 otherwise."""
    pairs, share = len(distances), float(equal.mean()) if len(equal) else 0.0
    if share in (0.0, 1.0):
        return 0.0
    ordered = np.sort(distances)
    edges = np.flatnonzero(np.diff(ordered)) + 1
    ties = np.diff(np.concatenate(([0], edges, [pairs]))).astype(np.float64)
    variance = (pairs**2 - 1) / 12 - (ties**3 - ties).sum() / (12 * pairs)
    if len(ties) == 1:
        return 0.0
    found = distances[equal]
    ranks = (np.searchsorted(ordered, found, "left") + np.searchsorted(ordered, found, "right") + 1) / 2
    below = (pairs + 1) / 2 - ranks.mean()  # how far equal pairs lie below the mean rank
    return float(share * below / np.sqrt(variance * share * (1 - share)))
