"""A fused Sinkhorn solver for CUDA: one launch solves all B problems.

One program owns one problem. Its absorbed kernel ``exp((alpha_m + beta_n - M_mn) / epsilon)`` stays in registers
for all iterations, so that memory is read once for the inputs and once a round for the shared cost, which lies in
cache. A round is one half-step in the log domain, which is exact in any range and absorbs the potentials into the
kernel, and `ITERATIONS` steps in the scaling domain, which cost two passes of multiply-adds each. Between rounds
the program estimates its own rate of convergence and over-relaxes accordingly (Lehmann et al. 2020, "A note on
overrelaxation in the Sinkhorn algorithm"). Convergence is decided on the device; the host never waits.

`preceptor.ot.fused` chooses this solver on CUDA up to `fused.LARGEST` classes a side; the torch code is its
oracle and takes what is larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

ITERATIONS = 8  # scaling steps between two absorptions, each of which also measures the error


@triton.jit
def _sinkhorn_kernel(  # type: ignore[no-untyped-def]  # triton's own types
    p_ptr, q_ptr, cost_ptr, beta0_ptr,  # (B, m), (B, n), padded (BLOCK_M, BLOCK_N), (B, n)
    alpha_ptr, beta_ptr, error_ptr, count_ptr,  # (B, m), (B, n), (B,), (B,)
    m, n, epsilon, tolerance, max_rounds,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEPS: tl.constexpr, WARM: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    p = tl.load(p_ptr + row * m + i, mask=i < m, other=0.0)
    q = tl.load(q_ptr + row * n + j, mask=j < n, other=0.0)
    log_p = tl.log(p)
    log_q = tl.log(q)
    # In units of epsilon: f = alpha / epsilon, g = beta / epsilon.
    g = tl.zeros([BLOCK_N], dtype=tl.float32)
    if WARM:
        g = tl.load(beta0_ptr + row * n + j, mask=j < n, other=0.0) / epsilon
    f = tl.zeros([BLOCK_M], dtype=tl.float32)
    # The cost is padded to whole blocks with +inf: an unmasked load keeps the tile in wide registers.
    pointers = cost_ptr + i[:, None] * BLOCK_N + j[None, :]

    rounds = 0
    error = float("inf")
    previous = float("inf")
    omega = 1.0
    while (rounds < max_rounds) & (error > tolerance):
        # Eq. (20), first half, in the log domain: alpha = epsilon (log p - logsumexp_n((beta_n - M_mn) / epsilon)).
        exponent = g[None, :] - tl.load(pointers)
        highest = tl.max(exponent, axis=1)
        highest = tl.where(highest > float("-inf"), highest, 0.0)
        kernel = tl.exp(exponent - highest[:, None])
        total = tl.sum(kernel, axis=1)
        carries = (p > 0) & (total > 0)
        f = tl.where(carries, log_p - tl.log(total) - highest, float("-inf"))
        kernel = kernel * tl.where(carries, p / total, 0.0)[:, None]  # its row sums are p
        column = tl.sum(kernel, axis=0)
        error = tl.sum(tl.abs(column - q))
        if (error > tolerance) & (rounds + 1 < max_rounds):  # the last round only measures: f and g must fit
            if rounds > 0:
                # The error shrank by `rate` a step under `omega`; `plain` is the rate without over-relaxation.
                rate = tl.exp(tl.log(tl.minimum(error / previous, 0.9999)) / (STEPS + 1))
                plain = (rate + omega - 1) * (rate + omega - 1) / (rate * omega * omega)
                best = 2 / (1 + tl.sqrt(1 - tl.minimum(plain, 0.9993)))
                omega = tl.where(error > 0.95 * previous, 0.5 + 0.5 * omega, tl.maximum(best, 1.0))
            previous = error
            v = tl.where((q > 0) & (column > 0), q / column, 1.0)
            u = tl.full([BLOCK_M], 1.0, dtype=tl.float32)
            for _ in range(STEPS):
                # Eq. (20): u <- p / (K v), v <- q / (K^T u), each to the power omega over its last value.
                total = u * tl.sum(kernel * v[None, :], axis=1)
                u = u * tl.where(total > 0, tl.exp(omega * (log_p - tl.log(total))), 1.0)
                u = tl.minimum(tl.maximum(u, 1e-30), 1e30)
                column = v * tl.sum(kernel * u[:, None], axis=0)
                v = v * tl.where(column > 0, tl.exp(omega * (log_q - tl.log(column))), 1.0)
                v = tl.minimum(tl.maximum(v, 1e-30), 1e30)
            g = g + tl.log(v)
        rounds += 1

    tl.store(alpha_ptr + row * m + i, f * epsilon, mask=i < m)
    tl.store(beta_ptr + row * n + j, g * epsilon, mask=j < n)
    tl.store(error_ptr + row, error)
    tl.store(count_ptr + row, 1 + (rounds - 1) * (STEPS + 1))


@dataclass(frozen=True)
class FusedSolution:
    """Potentials of all problems, the L1 error of their column marginals, and the iterations each took."""

    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,)
    iterations: Tensor  # (B,) int32


def _blocks(m: int, n: int) -> tuple[int, int, int]:
    """Block sizes, and enough warps that the kernel takes about 32 registers of each thread."""
    block_m, block_n = (max(16, triton.next_power_of_2(size)) for size in (m, n))
    return block_m, block_n, min(32, max(1, block_m * block_n // 1024))


def solve_fused(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None,
) -> FusedSolution:
    """Solve B problems in one launch.

    Args:
        p: (B, m) float32, positive, rows sum to 1.
        q: (B, n) likewise.
        cost: (m, n); the caller has taken its minimum out. +inf forbids a pair.
        epsilon: Weight of the entropy.
        tolerance: L1 marginal error at which a problem stops.
        max_iterations: Most iterations for a problem, rounded up to whole rounds.
        beta0: (B, n) potentials to start from.
    """
    batch, m = p.shape
    n = q.shape[1]
    block_m, block_n, warps = _blocks(m, n)
    padded = torch.nn.functional.pad(cost / epsilon, (0, block_n - n, 0, block_m - m), value=float("inf"))
    p, q = p.contiguous(), q.contiguous()
    alpha, beta = torch.empty_like(p), torch.empty_like(q)
    error = p.new_empty(batch)
    count = torch.empty(batch, dtype=torch.int32, device=p.device)
    rounds = 1 + -(-max_iterations // (ITERATIONS + 1))
    _sinkhorn_kernel[(batch,)](
        p, q, padded, q if beta0 is None else beta0.contiguous(), alpha, beta, error, count,
        m, n, epsilon, tolerance, rounds,
        BLOCK_M=block_m, BLOCK_N=block_n, STEPS=ITERATIONS, WARM=beta0 is not None, num_warps=warps,
    )  # fmt: skip
    return FusedSolution(alpha, beta, error, count)
