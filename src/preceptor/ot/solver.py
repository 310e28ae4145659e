"""The seam between the public functions and the ways to solve: validated tensors in, potentials out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Solution:
    """Potentials for the reduced cost (its minimum taken out) and how well they fit."""

    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,) L1 marginal error
    iterations: int


def solve(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None,
) -> Solution:
    """Iterate Eq. (20) in the log domain until every problem's column marginals are within the tolerance."""
    log_kernel = (-cost / epsilon).double()
    log_p = p.double().clamp_min(torch.finfo(p.dtype).tiny).log()
    log_q = q.double().clamp_min(torch.finfo(p.dtype).tiny).log()
    log_v = torch.zeros_like(log_q) if beta0 is None else beta0.double() / epsilon
    for iteration in range(1, max_iterations + 1):
        log_u = log_p - torch.logsumexp(log_kernel + log_v[:, None, :], dim=2)  # Eq. (20), u
        log_s = torch.logsumexp(log_kernel + log_u[:, :, None], dim=1)
        error = ((log_v + log_s).exp() - q).abs().sum(dim=1)
        if bool((error <= tolerance).all()):
            break
        if iteration < max_iterations:
            log_v = log_q - log_s  # Eq. (20), v
    return Solution(
        (epsilon * log_u).to(p.dtype), (epsilon * log_v).to(p.dtype), error.to(p.dtype), iteration
    )
