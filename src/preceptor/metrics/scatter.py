"""Means and covariance of a teacher's features, computed once and shared by the metrics that need them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse

from preceptor.metrics.inputs import Array
from preceptor.metrics.sampling import content_hash

BLOCK = 4096  # rows that are centred and multiplied at a time
SINGLE_PRECISION_FROM = 8e9  # multiply-adds N d^2 beyond which float32 features are multiplied in float32


@dataclass(frozen=True)
class Scatter:
    """First and second moments of features, up to a rotation.

    With fewer samples than dimensions, features are turned into their own span (r = N), which leaves
    distances, eigenvalues and traces alone; otherwise r = d. The sums run over the rows in an order that
    depends on their content alone, so that a shuffled data set gives the same bits, and with them the same
    eigenvectors where the spectrum has equal values. Products are taken in float64; beyond
    `SINGLE_PRECISION_FROM` multiply-adds float32 features are multiplied in float32, block by block, and only
    the blocks are added in float64.
    """

    rotated: Array | None  # (N, N) centred coordinates in the span when N < d
    mean: Array  # (r,) what to subtract from the values to centre them
    covariance: Array  # (r, r) with 1/N
    counts: Array  # (C,) samples of each class
    class_means: Array  # (C, r) differences from the mean
    energies: Array  # (N,) squared distance of each sample from the mean
    along_mean: Array  # (N,) inner product of each centred sample with the mean of the features as they came
    hashes: Array  # (N,) of the content of each row
    order: Array  # (N,) the rows by content
    dimensions: int  # d, of the features as they came
    offset: float  # the norm of the mean of the features as they came
    kept: dict[Any, Any] = field(default_factory=dict)  # what metrics made of the moments, for each other

    @property
    def total_variance(self) -> float:
        """The trace of the covariance."""
        return float(np.trace(self.covariance))

    def projected(self, values: Array) -> Array:
        """The centred values on the leading axes, (N, k); computed once for all metrics."""
        if "projected" not in self.kept:
            axes = self.leading[1]
            self.kept["projected"] = values @ axes.astype(values.dtype) - self.mean @ axes
        projected: Array = self.kept["projected"]
        return projected

    @cached_property
    def leading(self) -> tuple[Array, Array]:
        """Up to 64 leading eigenvalues, largest first, and eigenvectors (r, k) of the covariance."""
        return leading_eigenpairs(self.covariance, 64)


_latest: dict[str, tuple[tuple[Any, ...], Any]] = {}
_lock = threading.Lock()


def scatter(features: Array, indices: Array, classes: int) -> tuple[Array, Scatter]:
    """The values (N, r) and their scatter, kept for the next metric that asks about the same arrays.

    Args:
        features: (N, d), checked.
        indices: (N,) compact labels.
        classes: how many there are.

    Returns:
        The features as they came, or their coordinates in their span when N < d; and the moments.
    """
    print_of_rows, print_of_labels = _fingerprint(features), indices.tobytes()
    key = print_of_rows, print_of_labels
    result: Scatter = _shared("scatter", key, lambda: _compute(features, print_of_rows, indices, classes))
    return (features if result.rotated is None else result.rotated), result


def forget() -> None:
    """Let go of what is kept for the next metric: its memory, and the time it would save."""
    with _lock:
        _latest.clear()


def row_hashes(features: Array) -> Array:
    """`content_hash` of the features, kept for the next metric that asks about the same array."""
    return _row_hashes(features, _fingerprint(features))


def _row_hashes(features: Array, print_of_rows: tuple[Any, ...]) -> Array:
    hashes: Array = _shared("hashes", print_of_rows, lambda: content_hash(features))
    return hashes


def _shared(name: str, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """The latest result of that name if its key is the same; else what `compute` gives."""
    with _lock:
        held = _latest.get(name)
    if held is None or held[0] != key:
        held = key, compute()
        with _lock:  # one entry, without the features themselves: memory stays bounded by one teacher
            _latest[name] = held
    return held[1]


def working_type(features: Array) -> Any:
    """The precision in which products of these rows are taken; see `Scatter`."""
    large = float(len(features)) * features.shape[1] ** 2 > SINGLE_PRECISION_FROM
    return np.float32 if large and features.dtype == np.float32 else np.float64


def leading_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest eigenvalues, falling, and eigenvectors of a symmetric positive matrix.

    Exact up to 256 rows; above, in a block Krylov space of four powers or more from a fixed start (Musco and
    Musco, 2015) in float32, which finds the eigenvalues of features with any structure to about 0.2 %.
    """
    size = len(matrix)
    count = min(count, size)
    if size <= 256:
        values, vectors = np.linalg.eigh(matrix)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    width = count + 16
    scale = float(np.trace(matrix)) or 1.0  # squares of large entries would be beyond float32
    single = torch.from_numpy(matrix / scale).float()
    block = torch.from_numpy(np.random.default_rng(0).standard_normal((size, width))).float()
    powers = []
    for _ in range(max(1, min(max(4, 160 // width), size // width))):
        block = torch.linalg.qr(single @ block).Q
        powers.append(block)
    basis = torch.linalg.qr(torch.cat(powers, dim=1)).Q
    values, turn = np.linalg.eigh((basis.T @ (single @ basis)).double().numpy())
    vectors = basis.numpy() @ turn[:, ::-1][:, :count]
    return values[::-1][:count] * scale, vectors


def largest_eigenvalue(matrix: Array, steps: int = 48) -> float:
    """The largest eigenvalue of a symmetric positive matrix.

    Exact up to 256 rows; above, Lanczos's method from a fixed start in float32 with every vector made orthogonal
    to all before it. It comes from below, to about 0.2 % where eigenvalues crowd at the top.
    """
    size = len(matrix)
    if size <= 256:
        return float(np.linalg.eigvalsh(matrix)[-1])
    scale = float(np.trace(matrix)) or 1.0  # as above
    single = (matrix / scale).astype(np.float32)
    basis = np.zeros((steps, size), dtype=np.float32)
    reduced = np.zeros((steps, steps))
    vector = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for step in range(steps):
        basis[step] = vector / np.linalg.norm(vector)
        vector = single @ basis[step]
        reduced[: step + 1, step] = reduced[step, : step + 1] = basis[: step + 1] @ vector
        image = np.linalg.norm(vector)
        for _ in range(2):
            vector -= (basis[: step + 1] @ vector) @ basis[: step + 1]
        if np.linalg.norm(vector) <= 1e-5 * image:  # what is left is rounding: the space holds its own image
            break
    return float(np.linalg.eigvalsh(reduced[: step + 1, : step + 1])[-1]) * scale


def membership(indices: Array, classes: int, kind: Any = np.float64) -> sparse.csr_array:
    """The sparse (C, N) matrix that sums rows by class: twenty times faster than a sort and a reduction."""
    entries = np.ones(len(indices), dtype=kind), (indices, np.arange(len(indices)))
    return sparse.csr_array(entries, shape=(classes, len(indices)))


def _compute(features: Array, print_of_rows: tuple[Any, ...], indices: Array, classes: int) -> Scatter:
    samples, dimensions = features.shape
    hashes = _row_hashes(features, print_of_rows)
    order = np.argsort(hashes, kind="stable")
    mean = _mean(features, order)
    rotated, origin, values = None, mean, features
    along_mean, energies = np.empty(samples), np.empty(samples)
    if samples < dimensions:
        centred = features[order] - mean
        along_mean[order] = centred @ mean
        rotated = np.empty((samples, samples))
        rotated[order] = np.linalg.qr(centred.T)[1].T  # X^T = Q R: the rows of R^T are X turned by Q
        values, origin = rotated, np.zeros(samples)
    kind = working_type(values)
    total, sums = np.zeros((values.shape[1], values.shape[1])), np.zeros((classes, values.shape[1]))
    for start in range(0, samples, BLOCK):
        rows = order[start : start + BLOCK]
        block = values[rows] - origin.astype(kind)
        total += block.T @ block
        sums += membership(indices[rows], classes, kind) @ block
        energies[rows] = np.einsum("nd,nd->n", block, block)
        if rotated is None:
            along_mean[rows] = block @ mean.astype(kind)
    counts = np.bincount(indices, minlength=classes)
    class_means = sums / counts[:, None]
    return Scatter(
        rotated=rotated,
        mean=origin,
        covariance=total / samples,
        counts=counts,
        class_means=class_means,
        energies=energies,
        along_mean=along_mean,
        hashes=hashes,
        order=order,
        dimensions=dimensions,
        offset=float(np.linalg.norm(mean)),
    )


def _mean(features: Array, order: Array) -> Array:
    """The mean (d,) in float64; of a constant column exactly its value, or rounding would be its variance."""
    # Sums of float32 numbers are exact enough for that; float64 numbers are measured from one of them.
    origin = features[order[0]] if features.dtype == np.float64 else np.zeros(features.shape[1])
    total = np.zeros(features.shape[1])
    for rows in np.array_split(order, -(-len(order) // BLOCK)):
        block = features[rows]
        if features.dtype == np.float64:
            block -= origin
        total += block.sum(axis=0, dtype=np.float64)
    return origin + total / len(order)


def _fingerprint(features: Array) -> tuple[Any, ...]:
    """Where the array lies and what it holds: an array overwritten in place is not taken for the old one."""
    weights = np.random.default_rng(0).standard_normal(len(features)).astype(features.dtype)
    content = (weights @ features).tobytes()
    address = features.__array_interface__["data"][0]
    return address, features.shape, features.strides, features.dtype.str, content
