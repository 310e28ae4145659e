"""TransRate: the mutual information of features and labels, with the coding rate in place of the entropy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, check_positive, compact_labels
from preceptor.metrics.linear_algebra import Cholesky
from preceptor.metrics.scatter import Scatter, scatter, working_type

BATCH_ENTRIES = 4_000_000  # of a padded batch of classes: 32 MB


@entry()
def transrate(
    *, features: Any, labels: Any, epsilon: float = 1e-4, normalize: bool = True, **_unused: Any
) -> float:
    """Huang et al., Frustratingly easy transferability estimation, ICML 2022.

    With Z the centred features, Z_c those of class c (not centred again) and n_c their number::

        R(Z)   = 1/2 log det( I + Z^T Z / (N epsilon) )
        TrR    = R(Z) - sum_c n_c/N R(Z_c)

    In nats, never negative. Determinants are taken on the smaller side of each matrix. Coding rates grow with
    the scale of the features, which differs between teachers for no good reason, so Z is first divided by its
    root mean squared norm; `normalize=False` gives the formula on the features as they came.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        epsilon: the distortion, the paper's 1e-4.
        normalize: take the scale of the features out.
    """
    check_positive(epsilon=epsilon)
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    if moments.total_variance == 0:
        return 0.0
    scale = epsilon * (moments.total_variance if normalize else 1.0)
    precision = float(np.finfo(working_type(values)).eps)
    rate = float(_coding_rates(torch.from_numpy(moments.covariance / scale), precision))
    weights = moments.counts / len(values)
    return max(rate - float(weights @ _class_rates(values, indices, moments, scale)), 0.0)  # rounding apart


def _class_rates(values: Array, indices: Array, moments: Scatter, scale: float) -> Array:
    """R(Z_c) of each class (C,), the determinants of many classes of like size in one batch."""
    counts, rank = moments.counts, values.shape[1]
    order = np.argsort(indices, kind="stable")
    groups = np.split(order, np.cumsum(counts)[:-1])
    mean, epsilon = moments.mean.astype(values.dtype), float(np.finfo(values.dtype).eps)
    rates = np.empty(len(counts))
    by_size = np.argsort(counts, kind="stable")
    for members in _batches(by_size, counts, rank):
        side = min(int(counts[members].max()), rank)
        grams = np.zeros((len(members), side, side))  # rows of zeros leave determinants alone
        for gram, member in zip(grams, members, strict=True):
            rows = values[groups[member]] - mean
            rows = rows if len(rows) <= rank else rows.T
            # A matrix by its own transpose: half the work of any other product.
            np.divide(rows @ rows.T, counts[member] * scale, out=gram[: len(rows), : len(rows)])
        rates[members] = _coding_rates(torch.from_numpy(grams), epsilon).numpy()
    return rates


def _batches(by_size: Array, counts: Array, rank: int) -> Iterator[Array]:
    """Classes from small to large, cut where their padded matrices would pass `BATCH_ENTRIES`."""
    start = 0
    sides = np.minimum(counts[by_size], rank)
    while start < len(by_size):
        stop = start + 1
        while stop < len(by_size) and (stop + 1 - start) * sides[stop] ** 2 <= BATCH_ENTRIES:
            stop += 1
        yield by_size[start:stop]
        start = stop


def _coding_rates(gram: Tensor, epsilon: float) -> Tensor:
    """Half of log det(I + gram) of one or a batch of matrices of relative precision `epsilon`."""
    rounding = epsilon * gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1, keepdim=True)  # of the eigenvalues
    if float(rounding.max()) < 0.01:
        shifted = gram.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(1)
        if gram.ndim == 2:
            return torch.tensor(Cholesky.of(shifted.numpy()).half_log_determinant(), dtype=gram.dtype)
        return torch.linalg.cholesky(shifted).diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    # Entries so large that the rounding of a zero eigenvalue is seen beside the identity.
    eigenvalues = torch.linalg.eigvalsh(gram)
    return torch.where(eigenvalues > rounding, eigenvalues, 0).log1p().sum(dim=-1) / 2
