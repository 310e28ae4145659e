"""NLEEP: LEEP with clusters of the features in place of the source classes."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.metrics.inputs import Array, as_matrix, compact_labels
from preceptor.metrics.leep import log_expected_prediction
from preceptor.metrics.scatter import scatter

ENERGY = 0.8  # of the variance that the principal axes keep
AXES = 32  # at most
FLOOR = 1e-3  # of the mean variance, added to every component's variances
SMALLEST_COMPONENT = 4  # samples a component must have on average
TOLERANCE = 1e-3  # change of the mean log-likelihood at which the iterations stop


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
    if components_per_class < 1 or max_iterations < 1:
        raise PreceptorError(
            f"components_per_class is {components_per_class} and max_iterations {max_iterations}; "
            f"expected at least 1 of both"
        )
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    values, moments = scatter(features, indices, classes)
    if moments.total_variance == 0:
        return log_expected_prediction(np.ones((len(features), 1)), indices, classes)
    eigenvalues, axes = moments.leading
    kept = int(np.searchsorted(np.cumsum(eigenvalues), ENERGY * moments.total_variance)) + 1
    axes = axes[:, : min(kept, AXES)]
    projected = values @ axes.astype(values.dtype) - moments.mean @ axes
    # By content, and in units of the overall spread: the same bits whatever order the samples came in.
    points = projected[moments.order] / np.sqrt(moments.total_variance)
    wanted = max(1, min(components_per_class * classes, len(points) // SMALLEST_COMPONENT))
    posterior = _mixture_posterior(points, _var_part(points, wanted), max_iterations)
    return log_expected_prediction(posterior, indices[moments.order], classes)


def _var_part(points: Array, wanted: int) -> Array:
    """Cluster numbers (N,): the cluster of largest scatter is cut at its mean, along its widest axis."""
    assignment = np.zeros(len(points), dtype=np.int64)
    smallest = 1e-10 * float(points.var(axis=0).sum())
    heap: list[tuple[float, int, Array, int]] = []  # scatter, number, rows, widest axis

    def push(number: int, rows: Array) -> None:
        assignment[rows] = number
        members = points[rows]
        sums = (members**2).sum(axis=0) - members.sum(axis=0) ** 2 / len(rows)
        if sums.sum() > smallest * len(rows):  # equal samples cannot be cut
            heapq.heappush(heap, (-float(sums.sum()), number, rows, int(sums.argmax())))

    push(0, np.arange(len(points)))
    for number in range(1, wanted):
        if not heap:
            break
        _, old, rows, axis = heapq.heappop(heap)
        members = points[rows, axis]
        above = members > members.mean() + 1e-6 * members.std()  # a sample at the mean stays below
        push(old, rows[~above])
        push(number, rows[above])
    return assignment


def _mixture_posterior(points: Array, assignment: Array, max_iterations: int) -> Array:
    """P(component | point), (N, K), after EM from a hard partition."""
    components = int(assignment.max()) + 1
    large = len(points) * components * points.shape[1] > 2e7
    data = torch.from_numpy(points).to(torch.float32 if large else torch.float64)
    moments = torch.cat([data, data**2], dim=1)  # (N, 2k): one product gives both sums of the M-step
    floor = FLOOR * float(data.var(dim=0, correction=0).mean())
    posterior = torch.zeros(len(data), components, dtype=data.dtype)
    posterior[torch.arange(len(data)), torch.from_numpy(assignment)] = 1
    previous = -np.inf
    for _ in range(max_iterations):
        posterior, likelihood = _expectation(moments, *_maximization(moments, posterior, floor))
        if abs(likelihood - previous) < TOLERANCE:
            break
        previous = likelihood
    return posterior.numpy()


def _maximization(moments: Tensor, posterior: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    mass = posterior.sum(dim=0) + 10 * torch.finfo(moments.dtype).eps  # (K,)
    means, squares = ((posterior.T @ moments) / mass[:, None]).chunk(2, dim=1)  # (K, k) each
    variances = (squares - means**2).clamp_min(0) + floor
    return mass.log() - float(np.log(len(moments))), means, variances


def _expectation(moments: Tensor, log_mass: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, float]:
    """Posterior (N, K) and the mean log-likelihood, up to the constant of the Gaussian."""
    precision = 1 / variances
    weights = torch.cat([means * precision, -0.5 * precision], dim=1)  # (K, 2k)
    constant = log_mass + 0.5 * (precision.log() - means**2 * precision).sum(dim=1)
    joint = torch.addmm(constant, moments, weights.T)  # (N, K)
    best = joint.max(dim=1, keepdim=True).values
    # Below e^-60 nothing matters, and denormal numbers would slow every later product down.
    posterior = torch.softmax(joint.sub_(best).clamp_(min=-60), dim=1)
    likelihood = best - posterior.amax(dim=1, keepdim=True).log()
    return posterior, float(likelihood.mean())
