"""A fused Sinkhorn solver for CUDA: one launch solves all B problems, after a small one that prepares the cost.

One program owns one problem. Its absorbed kernel ``2^((alpha_m + beta_n - M_mn) / unit)``, unit = epsilon ln 2,
stays in registers for a round of iterations. A round starts with a half-step in the log domain, which is exact in
any range and absorbs the potentials into the kernel; its iterations are in the scaling domain, two passes of
multiply-adds each, with an Anderson step after every second one. Kernels too large for the registers are streamed:
every iteration is in the log domain, a block of rows at a time. Convergence is decided on the device.

`preceptor.ot.fused` chooses this solver; the torch code is its oracle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_acceleration import image_of, leap, total
from .triton_tiles import (
    FLOOR,
    absorb,
    as_columns,
    as_rows,
    column_sums,
    distribution,
    entries,
    indices,
    prepare,
    row_sums,
)

LANES_M, LANES_N = 8, 16  # M2 and N2: rows and columns that a warp holds side by side
REGISTERS_M, REGISTERS_N = 16, 2  # most of M1 and N1: 128 entries a thread
HELD = 256 * 128  # largest kernel for the registers of one multiprocessor
STREAMED_M, STREAMED_N = 4, 4  # M1 of a block of rows, and most of N1, where the kernel is streamed
PAIRS, WIDE_PAIRS = 24, 12  # of iterations between two absorptions; where the range of costs is wide
PREPARED = 16384  # costs that a program prepares at a time

NARROW = tl.constexpr(40.0)  # bits between the costs: no entry that matters underflows within a round


@triton.jit
def _scale(kernel, v, p):
    """Eq. (20), first half: u = p ./ (K v)."""
    root = tl.rsqrt(tl.maximum(row_sums(kernel * as_columns(v)), FLOOR))
    return p * root * root  # the square is the reciprocal, at a fraction of a division's instructions


@triton.jit
def _held_kernel(  # type: ignore[no-untyped-def]
    p_ptr, q_ptr, cost_ptr, extent_ptr, beta0_ptr,  # (B, m), (B, n), prepared, (2,), (B, n)
    value_ptr, alpha_ptr, beta_ptr, error_ptr, count_ptr,  # (B,), (B, m), (B, n), (B,), (B,)
    m, n, unit, epsilon, tolerance, max_iterations,
    M1: tl.constexpr, N1: tl.constexpr, WM: tl.constexpr, WN: tl.constexpr, M2: tl.constexpr, N2: tl.constexpr,
    ROUND: tl.constexpr, WIDE_ROUND: tl.constexpr, WARM: tl.constexpr,
):  # fmt: skip
    """One problem whose kernel stays in registers."""
    problem = tl.program_id(0)
    i, j = indices(M1, WM, M2), indices(N1, WN, N2)
    offset = tl.load(extent_ptr)
    p = tl.load(p_ptr + problem * m + i, mask=i < m, other=0.0)
    q = tl.load(q_ptr + problem * n + j, mask=j < n, other=0.0)
    p_mass, q_mass = total(p), total(q)
    # NaN where an input is, or has no mass: ends the loop, gets into every result.
    poison = 0 * (p_mass / q_mass + q_mass / p_mass + offset)
    p, q = distribution(p, i < m, p_mass), distribution(q, j < n, q_mass)
    # Potentials in units of epsilon ln 2: f = alpha / unit, g = beta / unit; z = log2 v.
    f, g = tl.zeros_like(p), tl.zeros_like(q)
    if WARM:
        g = tl.load(beta0_ptr + problem * n + j, mask=j < n, other=0.0) / unit
    pointers = entries(cost_ptr, i, j, N1 * WN * N2)
    last_image, last_residual, image_c, c = (
        tl.zeros_like(q),
        tl.zeros_like(q),
        tl.zeros_like(q),
        tl.zeros_like(q),
    )
    cc = 0.0
    iterations = 0
    error = float("inf") + poison
    # Within a round entries that underflowed stay lost: in a wide range only an absorption tells the true error.
    wide = tl.load(extent_ptr + 1) > NARROW
    whole_round = tl.where(wide, WIDE_ROUND, ROUND)
    searching = error > tolerance
    while searching:
        kernel, absorbed = absorb(g, pointers)
        z, u = tl.zeros_like(q), p
        if wide:
            error = total(tl.abs(column_sums(kernel * as_rows(p)) - q))
            iterations += 1
        left = whole_round
        searching = (error > tolerance) & (iterations < max_iterations)
        while searching & (left > 0):
            # Eq. (20) once, then half of it again to measure the error of the columns.
            image = image_of(q, column_sums(kernel * as_rows(u)))
            residual = tl.sqrt(q) * (image - z)
            z = image
            v = tl.exp2(z)
            u = _scale(kernel, v, p)
            received = column_sums(kernel * as_rows(u))
            error = total(tl.abs(v * received - q))
            left -= 1
            iterations += 2
            searching = (error > tolerance) & (iterations < max_iterations)
            if searching:
                new_image = image_of(q, received)
                z, last_image, last_residual, image_c, c, cc = leap(
                    q, image, residual, new_image, last_image, last_residual, image_c, c, cc
                )
                u = _scale(kernel, tl.exp2(z), p)
        g += z
        last_image -= z
        f = absorbed + tl.log2(u)
        searching = searching | (wide & (left < whole_round))
    f += poison
    g += poison
    dual = total(tl.where(i < m, f * p, 0.0)) + total(g * q)
    tl.store(value_ptr + problem, dual * unit - epsilon + offset)  # Eq. (13)
    tl.store(alpha_ptr + problem * m + i, f * unit + offset, mask=i < m)
    tl.store(beta_ptr + problem * n + j, g * unit, mask=j < n)
    tl.store(error_ptr + problem, error)
    tl.store(count_ptr + problem, iterations)


@triton.jit
def _moved(g, p_ptr, p_mass, cost_ptr, m, i, j, BLOCK_M: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    """The column sums of the plan whose row sums are p: Eq. (20), first half, a block of rows at a time."""
    columns = tl.zeros_like(g)
    for start in range(0, BLOCK_M, ROWS):
        kernel, _ = absorb(g, entries(cost_ptr, start + i, j, BLOCK_N))
        p = tl.load(p_ptr + start + i, mask=start + i < m, other=0.0)
        columns += column_sums(kernel * as_rows(distribution(p, start + i < m, p_mass)))
    return columns


@triton.jit
def _streamed_kernel(  # type: ignore[no-untyped-def]
    p_ptr, q_ptr, cost_ptr, extent_ptr, beta0_ptr,
    value_ptr, alpha_ptr, beta_ptr, error_ptr, count_ptr,
    m, n, unit, epsilon, tolerance, max_iterations,
    M1: tl.constexpr, N1: tl.constexpr, WM: tl.constexpr, WN: tl.constexpr, M2: tl.constexpr, N2: tl.constexpr,
    BLOCK_M: tl.constexpr, WARM: tl.constexpr,
):  # fmt: skip
    """One problem whose kernel is made anew in every iteration; images are relative to the g of their pair."""
    ROWS: tl.constexpr = M1 * WM * M2
    BLOCK_N: tl.constexpr = N1 * WN * N2
    problem = tl.program_id(0)
    p_ptr += problem * m
    i, j = indices(M1, WM, M2), indices(N1, WN, N2)
    offset = tl.load(extent_ptr)
    p_mass = 0.0
    for start in range(0, BLOCK_M, ROWS):
        p_mass += total(tl.load(p_ptr + start + i, mask=start + i < m, other=0.0))
    q = tl.load(q_ptr + problem * n + j, mask=j < n, other=0.0)
    q_mass = total(q)
    poison = 0 * (p_mass / q_mass + q_mass / p_mass + offset)
    q = distribution(q, j < n, q_mass)
    g = tl.zeros_like(q)
    if WARM:
        g = tl.load(beta0_ptr + problem * n + j, mask=j < n, other=0.0) / unit
    last_image, last_residual, image_c, c = (
        tl.zeros_like(q),
        tl.zeros_like(q),
        tl.zeros_like(q),
        tl.zeros_like(q),
    )
    cc = 0.0
    iterations = 0
    error = float("inf") + poison
    while (iterations < max_iterations) & (error > tolerance):
        image = image_of(q, _moved(g, p_ptr, p_mass, cost_ptr, m, i, j, BLOCK_M, ROWS, BLOCK_N))
        z = image
        columns = _moved(g + z, p_ptr, p_mass, cost_ptr, m, i, j, BLOCK_M, ROWS, BLOCK_N)
        error = total(tl.abs(columns - q))
        iterations += 2
        if (error > tolerance) & (iterations < max_iterations):
            new_image = image + image_of(q, columns)
            z, last_image, last_residual, image_c, c, cc = leap(
                q, image, tl.sqrt(q) * image, new_image, last_image, last_residual, image_c, c, cc
            )
        g += z
        last_image -= z
    g += poison
    dual = total(g * q)
    for start in range(0, BLOCK_M, ROWS):
        p = tl.load(p_ptr + start + i, mask=start + i < m, other=0.0)
        p = distribution(p, start + i < m, p_mass)
        _, absorbed = absorb(g, entries(cost_ptr, start + i, j, BLOCK_N))
        f = absorbed + tl.log2(p) + poison
        dual += total(tl.where(start + i < m, f * p, 0.0))
        tl.store(alpha_ptr + problem * m + start + i, f * unit + offset, mask=start + i < m)
    tl.store(value_ptr + problem, dual * unit - epsilon + offset)  # Eq. (13)
    tl.store(beta_ptr + problem * n + j, g * unit, mask=j < n)
    tl.store(error_ptr + problem, error)
    tl.store(count_ptr + problem, iterations)


@dataclass(frozen=True)
class FusedSolution:
    """Eq. (5) and potentials of all problems, the L1 error of their column marginals, their iterations."""

    value: Tensor  # (B,)
    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,)
    iterations: Tensor  # (B,) int32


def _tiling(m: int, n: int) -> dict[str, int]:
    """How the kernel lies on registers, warps and lanes; `BLOCK_M` rows in all where it is streamed."""
    tiles_m = triton.next_power_of_2(-(-m // LANES_M))
    tiles_n = triton.next_power_of_2(-(-n // LANES_N))
    streamed = tiles_m * LANES_M * tiles_n * LANES_N > HELD
    registers_n = min(tiles_n, STREAMED_N if streamed else REGISTERS_N)
    tiling = {"N1": registers_n, "WN": tiles_n // registers_n, "M2": LANES_M, "N2": LANES_N}
    if streamed:
        return {**tiling, "M1": STREAMED_M, "WM": 1, "BLOCK_M": tiles_m * LANES_M}
    registers_m = min(tiles_m, REGISTERS_M)
    return {
        **tiling,
        "M1": registers_m,
        "WM": tiles_m // registers_m,
        "ROUND": PAIRS,
        "WIDE_ROUND": WIDE_PAIRS,
    }


def solve_fused(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None = None,
) -> FusedSolution:
    """Solve B problems in one launch.

    Args:
        p: (B, m) float32, not negative; rows are scaled to sum to 1.
        q: (B, n) likewise.
        cost: (m, n); +inf forbids a pair.
        epsilon: Weight of the entropy.
        tolerance: L1 marginal error at which a problem stops.
        max_iterations: Most iterations for a problem, or up to two more, since they come in pairs.
        beta0: (B, n) potentials to start from.
    """
    batch, m = p.shape
    n = q.shape[1]
    p, q, cost = p.contiguous(), q.contiguous(), cost.to(p.dtype).contiguous()
    unit = epsilon * math.log(2)
    tiling = _tiling(m, n)
    streamed = "BLOCK_M" in tiling
    kernel = _streamed_kernel if streamed else _held_kernel
    block_m = tiling.get("BLOCK_M", tiling["M1"] * tiling["WM"] * LANES_M)
    block_n = tiling["N1"] * tiling["WN"] * LANES_N
    prepared, extent = p.new_empty(block_m, block_n), p.new_empty(2)
    size = min(PREPARED, prepared.numel())
    prepare[(prepared.numel() // size,)](
        cost, prepared, extent, m, n, 1 / unit, BLOCK_M=block_m, BLOCK_N=block_n, SIZE=size,
        num_warps=max(1, size // 1024), enable_fp_fusion=True,
    )  # fmt: skip
    found = FusedSolution(
        p.new_empty(batch), torch.empty_like(p), torch.empty_like(q), p.new_empty(batch),
        torch.empty(batch, dtype=torch.int32, device=p.device),
    )  # fmt: skip
    kernel[(batch,)](
        p, q, prepared, extent, q if beta0 is None else beta0.contiguous(),
        found.value, found.alpha, found.beta, found.error, found.iterations,
        m, n, unit, epsilon, tolerance, max_iterations,
        **tiling, WARM=beta0 is not None, num_warps=tiling["WM"] * tiling["WN"],
        enable_fp_fusion=True,
    )  # fmt: skip
    return found
