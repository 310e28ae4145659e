"""The spectrum of the features as they came (not centred), and the labels' coordinates in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from preceptor.metrics.inputs import Array, class_sums
from preceptor.metrics.scatter import scatter, working_type


@dataclass(frozen=True)
class Spectrum:
    """F = U sqrt(values) V^T and the one-hot labels Y seen from U."""

    values: Array  # (k,) squared singular values, rising; k = min(N, d)
    energies: Array  # (C, k) squared entries of U^T Y
    counts: Array  # (C,) samples of each class: the squared norms of the columns of Y


def spectrum(features: Array, indices: Array, classes: int) -> Spectrum:
    """One eigendecomposition on the shorter side; U itself is never formed for N >= d.

    For N >= d the moments that the other metrics share give F^T F, and U^T Y = values^-1/2 V^T (F^T Y), where
    F^T Y are the sums of the classes. An eigenvalue below the rounding of F^T F is noise, and the quotient
    would blow it up: those directions carry nothing. The products of the centred rows round in the precision
    they are taken in, all else in float64.
    """
    samples, dimensions = features.shape
    counts = np.bincount(indices, minlength=classes).astype(np.float64)
    if samples < dimensions:
        rows = features.astype(np.float64)
        values, left = _eigh(rows @ rows.T)
        return Spectrum(np.maximum(values, 0), class_sums(left, indices, classes) ** 2, counts)
    _, moments = scatter(features, indices, classes)
    values, right = _eigh(samples * (moments.covariance + np.outer(moments.mean, moments.mean)))
    sums = (moments.class_means + moments.mean) * counts[:, None]  # (C, d) = Y^T F
    products = float(np.finfo(working_type(features)).eps) * samples * moments.total_variance
    kept = values > max(products, np.finfo(np.float64).eps * dimensions * max(values[-1], 0))
    energies = np.where(kept, (sums @ right) ** 2 / np.where(kept, values, 1), 0)
    # U has orthonormal columns, so a class cannot have more energy in it than it has samples.
    excess = np.maximum(energies.sum(axis=1) / counts, 1)
    return Spectrum(np.where(kept, values, 0), energies / excess[:, None], counts)


def _eigh(matrix: Array) -> tuple[Array, Array]:
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    return values.numpy(), vectors.numpy()
