"""When the fused CUDA solver is to be used, and how its answer looks to the rest of the package."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

LARGEST = 256  # classes a side that `triton_sinkhorn` takes
WIDEST = 8192  # classes of q that `triton_large` takes
SPAN = 40.0  # epsilons between the costs that it takes: no product of theirs underflows


def takes(p: Tensor, q: Tensor) -> bool:
    """Whether these problems go to a fused solver: float32 on CUDA."""
    fits = p.dtype == torch.float32 and q.shape[1] <= WIDEST
    return p.is_cuda and fits and len(p) > 0 and _has_triton()


def is_large(p: Tensor, q: Tensor) -> bool:
    """Whether they are too large for one launch to solve them all."""
    return max(p.shape[1], q.shape[1]) > LARGEST


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
    """Eq. (5), alpha and beta; up to `LARGEST` classes a side without a single wait for the device.

    That lets a CUDA graph record it, and leaves no room for looking at the numbers: NaN in gives NaN out, and a
    problem that did not reach the tolerance is not reported. `preceptor.ot.sinkhorn` looks and reports.
    """
    if cost.dtype.itemsize > p.dtype.itemsize:  # as in `sinkhorn`: an offset would cost digits in float32
        offset = cost.amin()
        reduced = (cost - offset).to(p.dtype)
        value, alpha, beta = value_and_potentials(p, q, reduced, epsilon, tolerance, max_iterations)
        return value + offset, alpha + offset, beta
    if is_large(p, q):
        return _large(p, q, cost, epsilon, tolerance, max_iterations)
    from .triton_sinkhorn import solve_fused

    found = solve_fused(p, q, cost, epsilon, tolerance, max_iterations)
    return found.value, found.alpha, found.beta


def _large(
    p: Tensor, q: Tensor, cost: Tensor, epsilon: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for more classes; what is left unsolved goes to `sinkhorn`, which looks and reports."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"with more than {LARGEST} classes a side the Sinkhorn solver looks at its error, which a graph cannot"
        )
    from .sinkhorn import sinkhorn
    from .triton_large import solve_large

    found = solve_large(p, q, cost, epsilon, tolerance, max_iterations)
    if found.too_wide:
        whole = sinkhorn(p, q, cost, epsilon, tolerance, max_iterations)
        return whole.value, whole.alpha, whole.beta
    if found.unsolved:
        rows = (found.error > tolerance).nonzero().squeeze(1)
        rest = sinkhorn(p[rows], q[rows], cost, epsilon, tolerance, max_iterations, found.beta[rows])
        for column, better in ((found.value, rest.value), (found.alpha, rest.alpha), (found.beta, rest.beta)):
            column[rows] = better
    return found.value, found.alpha, found.beta
