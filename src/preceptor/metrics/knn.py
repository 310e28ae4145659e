"""Leave-one-out accuracy of the k nearest neighbours in the teacher's feature space."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, check_count, compact_labels
from preceptor.metrics.sampling import stratified_rows
from preceptor.metrics.scatter import scatter

QUERIES = 512  # at a time, at most
ENTRIES = 2**25  # of the distances of the queries at a time: 128 MB


@entry()
def knn(
    *, features: Any, labels: Any, neighbors: int = 5, max_queries: int | None = 1000, **_unused: Any
) -> float:
    """Leave-one-out accuracy of a vote among the nearest neighbours, Euclidean.

    Cover and Hart, Nearest neighbor pattern classification, 1967. Between 0 and 1. Nothing depends on the
    order of samples or classes: samples at the same distance as the k-th nearest (duplicates above all) share
    the votes that are left, and where several classes lead the vote a sample counts as right with one over
    their number. A class with one sample has no neighbour of its own and counts as wrong, as it must.

    Above `max_queries` samples about that many are asked, each class with its share, chosen by a hash of their
    features, against all the others; the classes are weighted back to their shares, so the estimate is
    unbiased with a standard error of at most 1.6 points at 1,000. `None` asks all.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        neighbors: how many vote; at most N - 1 do.
        max_queries: how many samples are asked at most, about: each class at least one.
    """
    check_count(1, neighbors=neighbors, **({} if max_queries is None else {"max_queries": max_queries}))
    features = as_matrix(features, "features")
    if len(features) < 2:
        raise PreceptorError("features has 1 row; leave-one-out neighbours need at least 2 samples")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    # Around the mean: products of rows far from the origin would drown the distances.
    values = values - moments.mean.astype(values.dtype)
    rows = stratified_rows(moments.hashes, indices, classes, max_queries or len(features))
    size = max(1, min(QUERIES, ENTRIES // len(values)))
    energies = np.einsum("nd,nd->n", values, values, dtype=np.float64)
    credit = np.concatenate(
        [
            _credit(values, energies, indices, rows[start : start + size], min(neighbors, len(values) - 1))
            for start in range(0, len(rows), size)
        ]
    )
    asked = np.bincount(indices[rows], minlength=classes)
    right = np.bincount(indices[rows], credit, classes)
    return float((right / asked) @ moments.counts / len(values))


def _credit(values: Array, energies: Array, indices: Array, rows: Array, neighbors: int) -> Array:
    """For each asked row the chance in [0, 1] that the vote names its class."""
    kind = values.dtype.type
    # |x|^2 - 2 q x differs from the squared distance by a constant for each query q.
    distances = torch.from_numpy((-2 * values[rows]) @ values.T)  # (Q, N)
    distances += torch.from_numpy(energies.astype(kind))
    distances[torch.arange(len(rows)), torch.from_numpy(rows)] = torch.inf
    # One more than vote: it shows ties with the last of them.
    found = torch.topk(distances, neighbors + 1, dim=1, largest=False)
    nearest, last, beyond = found.indices[:, :-1], found.values[:, -2:-1], found.values[:, -1:]
    slack = _rounding(energies, rows, kind)
    targets = torch.from_numpy(indices)
    votes = torch.zeros(len(rows), int(indices.max()) + 1, dtype=torch.float64)
    votes.scatter_add_(1, targets[nearest], torch.ones(nearest.shape, dtype=torch.float64))
    for row in torch.nonzero(beyond <= last + slack)[:, 0].tolist():
        votes[row] = _shared_votes(
            distances[row], targets, last[row] - slack[row], last[row] + slack[row], votes
        )
    leads = votes >= votes.max(dim=1, keepdim=True).values - 1e-6
    right = leads[torch.arange(len(rows)), targets[torch.from_numpy(rows)]]
    return (right / leads.sum(dim=1)).numpy()


def _shared_votes(distances: Tensor, targets: Tensor, low: Tensor, high: Tensor, votes: Tensor) -> Tensor:
    """Votes (C,) of one query whose k-th distance is shared by more samples than there are votes left."""
    closer, tied = distances < low, (distances >= low) & (distances <= high)
    neighbors = votes.sum(dim=1)[0]  # every row holds k votes
    weights = closer.double() + tied.double() * (neighbors - closer.sum()) / tied.sum()
    return torch.bincount(targets, weights, minlength=votes.shape[1])


def _rounding(energies: Array, rows: Array, kind: Any) -> Tensor:
    """(Q, 1) what rounding may do to `distances`: closer than that, two samples are equally far."""
    reach = np.sqrt(energies.max())
    size = reach**2 + 2 * np.sqrt(energies[rows]) * reach
    return torch.from_numpy((32 * np.finfo(kind).eps * size).astype(kind))[:, None]
