"""NLEEP: LEEP with clusters of the features in place of the source classes."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, check_count, compact_labels
from preceptor.metrics.leep import log_expected_prediction
from preceptor.metrics.scatter import scatter

ENERGY = 0.8  # of the variance that the principal axes keep
AXES = 32  # at most
FLOOR = 1e-3  # of the mean variance, added to every component's variances
SMALLEST_COMPONENT = 4  # samples a component must have on average
TOLERANCE = 1e-3  # change of the mean log-likelihood at which the iterations stop
NOTHING = math.exp(-60)  # a probability; denormal numbers in its place would slow every product down


@entry()
def nleep(
    *, features: Any, labels: Any, components_per_class: int = 5, max_iterations: int = 10, **_unused: Any
) -> float:
    """Li et al., Ranking neural checkpoints, CVPR 2021.

    Features are projected on the principal axes that keep 80 % of their variance, a mixture of K Gaussians is
    fitted without labels, and the posterior of the clusters stands where LEEP has the teacher's softmax::

        theta_n(v) = P(v | x_n)        NLEEP = 1/N sum_n log sum_v P(y_n | v) theta_n(v)

    At most 0; needs no classifier. Departures, for speed and to be a function of the data alone: at most 32
    axes; diagonal covariances in the principal axes, with 0.1 % of the mean variance added; EM starts from
    the Var-Part partition (Su and Dy, In search of deterministic methods for initializing K-means and
    Gaussian mixture clustering, 2007) instead of random seeds; K = 5 C as in the paper, but at most N / 4.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        components_per_class: Gaussians for each class of the task.
        max_iterations: EM steps at most.
    """
    check_count(1, components_per_class=components_per_class, max_iterations=max_iterations)
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    if moments.total_variance == 0:
        return log_expected_prediction(np.ones((len(features), 1)), indices, classes)
    eigenvalues = moments.leading[0]
    kept = int(np.searchsorted(np.cumsum(eigenvalues), ENERGY * moments.total_variance)) + 1
    projected = moments.projected(values)[:, : min(kept, AXES)]
    # By content, and in units of the overall spread: the same bits whatever order the samples came in.
    points = projected[moments.order] / np.sqrt(moments.total_variance)
    wanted = max(1, min(components_per_class * classes, len(points) // SMALLEST_COMPONENT))
    posterior = _mixture_posterior(points, _var_part(points, wanted), max_iterations)
    return log_expected_prediction(posterior, indices[moments.order], classes)


def _var_part(points: Array, wanted: int) -> Array:
    """Cluster numbers (N,): the cluster of largest scatter is cut at its mean, along its widest axis."""
    assignment = np.zeros(len(points), dtype=np.int64)
    smallest = 1e-10 * float(points.var(axis=0).sum())
    heap: list[
        tuple[float, int, Array, int, float]
    ] = []  # scatter, number, rows, widest axis, where to cut it

    def push(number: int, rows: Array) -> None:
        assignment[rows] = number
        members = points[rows]
        means = np.add.reduce(members, axis=0) / len(rows)
        sums = np.einsum("nk,nk->k", members, members) - len(rows) * means**2
        total, axis = float(np.add.reduce(sums)), int(sums.argmax())
        if total > smallest * len(rows):  # equal samples cannot be cut
            edge = means[axis] + 1e-6 * math.sqrt(sums[axis] / len(rows))  # a sample at the mean stays below
            heapq.heappush(heap, (-total, number, rows, axis, edge))

    push(0, np.arange(len(points)))
    for number in range(1, wanted):
        if not heap:
            break
        _, old, rows, axis, edge = heapq.heappop(heap)
        above = points[rows, axis] > edge
        push(old, rows[~above])
        push(number, rows[above])
    return assignment


def _mixture_posterior(points: Array, assignment: Array, max_iterations: int) -> Array:
    """P(component | point), (N, K), after EM from a hard partition."""
    components = int(assignment.max()) + 1
    large = len(points) * components * points.shape[1] > 2e7
    data = torch.from_numpy(points).to(torch.float32 if large else torch.float64)
    # (N, 2k + 1): one product with the posterior gives all sums of the M-step.
    moments = torch.cat([data, data**2, torch.ones(len(data), 1, dtype=data.dtype)], dim=1)
    floor = FLOOR * float(data.var(dim=0, correction=0).mean())
    posterior = torch.zeros(len(data), components, dtype=data.dtype)
    posterior[torch.arange(len(data)), torch.from_numpy(assignment)] = 1
    scores = torch.empty_like(posterior)
    previous = -np.inf
    for _ in range(max_iterations):
        model = _maximization(moments, posterior, floor)
        likelihood = _expectation(moments, model, scores, out=posterior)
        if abs(likelihood - previous) < TOLERANCE:
            break
        previous = likelihood
    return posterior.numpy()


def _maximization(moments: Tensor, posterior: Tensor, floor: float) -> Tensor:
    """The components as rows (K, 2k + 1) whose products with `moments` are log P(component, point)."""
    sums = torch.from_numpy(posterior.numpy().T @ moments.numpy())  # (K, 2k + 1)
    mass = sums[:, -1] + 10 * torch.finfo(moments.dtype).eps
    means, squares = (sums[:, :-1] / mass[:, None]).chunk(2, dim=1)  # (K, k) each
    precision = 1 / ((squares - means**2).clamp_min(0) + floor)
    constant = mass.log() - float(np.log(len(moments)))
    constant += 0.5 * (precision.log() - means**2 * precision).sum(dim=1)
    return torch.cat([means * precision, -0.5 * precision, constant[:, None]], dim=1)


def _expectation(moments: Tensor, model: Tensor, scores: Tensor, out: Tensor) -> float:
    """Writes the posterior to `out` (N, K), by way of the log P in `scores`; returns the mean log-likelihood.

    The likelihood leaves out the constant of the Gaussian.
    """
    np.matmul(moments.numpy(), model.numpy().T, out=scores.numpy())
    torch.softmax(scores, dim=1, out=out)
    likelihood = float((scores.amax(dim=1) - out.amax(dim=1).log()).mean())
    out.clamp_(min=NOTHING)
    return likelihood
