"""When the fused CUDA solver is to be used, and how its answer looks to the rest of the package."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from .scaling import mass_floor

LARGEST = 256  # classes a side that `triton_sinkhorn` takes


def takes(p: Tensor, q: Tensor) -> bool:
    """Whether these problems go to the fused solver: float32 on CUDA, up to `LARGEST` classes a side."""
    fits = p.dtype == torch.float32 and max(p.shape[1], q.shape[1]) <= LARGEST
    return p.is_cuda and fits and len(p) > 0 and _has_triton()


@cache
def _has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def value_and_potentials(
    p: Tensor, q: Tensor, cost: Tensor, epsilon: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. (5), alpha and beta without a single wait for the device, so that a CUDA graph can record it.

    That leaves no room for looking at the numbers: NaN in gives NaN out, and a problem that did not reach the
    tolerance is not reported. `preceptor.ot.sinkhorn` looks and reports.
    """
    from .triton_sinkhorn import solve_fused

    floor = mass_floor(p.dtype)
    p, q = (side / side.sum(dim=1, keepdim=True) for side in (p, q))
    offset = cost.amin()
    found = solve_fused(
        p.clamp_min(floor),
        q.clamp_min(floor),
        cost.to(p.dtype) - offset,
        epsilon,
        tolerance,
        max_iterations,
        None,
    )
    dual = (found.alpha * p).sum(dim=1) + (found.beta * q).sum(dim=1) - epsilon  # Eq. (13)
    return dual + offset, found.alpha + offset, found.beta
