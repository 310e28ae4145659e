"""What Prop. 4.3 says about the convergence of the iteration: the Hilbert metric and kappa(K)."""

from __future__ import annotations

import torch
from torch import Tensor


def hilbert_metric(x: Tensor, y: Tensor) -> Tensor:
    """Hilbert's projective metric between positive vectors, taken over the last dimension.

    It is the variation seminorm of log x - log y: zero where one is a multiple of the other.
    """
    if bool((x <= 0).any()) or bool((y <= 0).any()):
        raise ValueError("the Hilbert metric is defined between positive vectors; a value of 0 or less came")
    ratio = x.log() - y.log()
    return ratio.amax(dim=-1) - ratio.amin(dim=-1)


def kappa(kernel: Tensor) -> Tensor:
    """The contraction constant of a positive kernel (m, n) in the Hilbert metric, a scalar in [0, 1).

    d(Kx, Ky) <= kappa(K) d(x, y), so that an iteration of Eq. (20), which applies K and its transpose,
    contracts the potentials by kappa(K) squared (Prop. 4.3).
    """
    if kernel.ndim != 2:
        raise ValueError(f"a kernel of shape {tuple(kernel.shape)} came; (m, n) was expected")
    if bool((kernel <= 0).any()):
        raise ValueError(
            "kappa is defined for positive kernels; a value of 0 or less came (is epsilon too small?)"
        )
    log_kernel = kernel.log()
    # log psi is the largest spread of a difference of two rows; row by row, for O(m n) memory.
    differences = (log_kernel - row for row in log_kernel)
    spreads = [torch.amax(rows.amax(dim=1) - rows.amin(dim=1)) for rows in differences]
    # (sqrt(psi) - 1) / (sqrt(psi) + 1) without forming psi, which overflows.
    return torch.tanh(torch.stack(spreads).amax() / 4)
