"""Distances and directions of rows that stay finite, with finite gradients, where points coincide."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_rows(points: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Points on the unit sphere along the last dimension; a zero vector stays, with a bounded gradient.

    `ot.unit_rows` puts class centres there exactly; a network learns through these, and its gradient has to be bounded.
    """
    return points * (points.square().sum(dim=-1, keepdim=True) + epsilon).rsqrt()


def safe_root(squares: Tensor, epsilon: float = 1e-12) -> Tensor:
    """The square root with gradient 0, not infinity, at 0; NaN stays NaN."""
    return torch.where(squares <= epsilon, torch.zeros_like(squares), squares.clamp_min(epsilon).sqrt())


def distances(first: Tensor, second: Tensor) -> Tensor:
    """Euclidean distances between the rows of two sets: (B, d), (C, d) to (B, C)."""
    # The mean is taken out first: the expanded square loses digits where points lie far from the origin.
    origin = first.detach().mean(dim=0)
    first, second = first - origin, second - origin
    squares = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1)[None, :] - 2 * first @ second.T
    return safe_root(squares)


def or_one(total: Tensor) -> Tensor:
    """A sum of weights to divide by: 1 where nothing counts.

    Not the smallest positive number: its inverse times a large factor overflows in the gradient.
    """
    return torch.where(total > 0, total, torch.ones_like(total))


def pair_weights(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """1 for two different rows that both count, 0 otherwise.  (B,) to (B, B)."""
    weights = (weights > 0).to(dtype)
    others = 1 - torch.eye(len(weights), dtype=dtype, device=weights.device)
    return weights[:, None] * weights[None, :] * others


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of all entries with weights of the same shape; 0 where none counts."""
    return (values * weights).sum() / or_one(weights.sum())
