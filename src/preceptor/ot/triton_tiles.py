"""How the fused solver lays a problem on the threads of a program.

What costs time there is less the arithmetic than the sums across threads. The kernel is therefore held as
(M1, N1, WM, WN, M2, N2), with rows (M1, WM, M2) and columns (N1, WN, N2): the compiler deals the last two axes to
the 32 threads of a warp, WM and WN to warps, and M1 and N1 stay in a thread's registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

FLOOR = tl.constexpr(1e-30)  # of masses, as `scaling.mass_floor`


@triton.jit
def prepare(  # type: ignore[no-untyped-def]  # triton's own types, here and below
    cost_ptr, prepared_ptr, extent_ptr, m, n, per_unit,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """(M - min M) / unit, padded with +inf to whole blocks: an unmasked load keeps the tile in wide registers.

    The extent is min M, NaN where a cost is, and (max M - min M) / unit.
    """
    k = tl.arange(0, SIZE)
    offset = float("inf")
    highest = float("-inf")
    spoilt = 0.0
    for start in range(0, BLOCK_M * BLOCK_N, SIZE):
        part = tl.load(cost_ptr + start + k, mask=start + k < m * n, other=tl.load(cost_ptr))
        offset = tl.minimum(offset, tl.min(part, axis=0))
        highest = tl.maximum(highest, tl.max(part, axis=0))
        spoilt = tl.maximum(spoilt, tl.max(tl.where(part == part, 0.0, 1.0), axis=0))
    offset = tl.where(spoilt > 0, float("nan"), offset)
    place = tl.program_id(0) * SIZE + k
    i, j = place // BLOCK_N, place % BLOCK_N
    cost = tl.load(cost_ptr + i * n + j, mask=(i < m) & (j < n), other=float("inf"))
    tl.store(prepared_ptr + place, tl.where((i < m) & (j < n), (cost - offset) * per_unit, float("inf")))
    tl.store(extent_ptr, offset)
    tl.store(extent_ptr + 1, (highest - offset) * per_unit)


@triton.jit
def indices(registers: tl.constexpr, warps: tl.constexpr, lanes: tl.constexpr):  # type: ignore[no-untyped-def]
    """0 … registers * warps * lanes - 1 on three axes."""
    outer = tl.arange(0, registers)[:, None, None] * (warps * lanes)
    return outer + tl.arange(0, warps)[None, :, None] * lanes + tl.arange(0, lanes)[None, None, :]


@triton.jit
def as_rows(x):
    """(M1, WM, M2) along the rows of a kernel."""
    return x[:, None, :, None, :, None]


@triton.jit
def as_columns(x):
    """(N1, WN, N2) along the columns of a kernel."""
    return x[None, :, None, :, None, :]


@triton.jit
def entries(cost_ptr, i, j, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pointers to the costs of rows i and columns j.

    The compiler deals axes to threads by how contiguous it believes them: the hint ranks them as said above.
    """
    pointers = cost_ptr + as_rows(i) * WIDTH + as_columns(j)
    return tl.max_contiguous(pointers, [1, 1, 2, 4, 8, 16])


@triton.jit
def row_sums(x):
    """Of a kernel, (M1, WM, M2): registers, then lanes, then warps."""
    return tl.sum(tl.sum(tl.sum(x, axis=1), axis=4), axis=2)


@triton.jit
def column_sums(x):
    """Of a kernel, (N1, WN, N2), likewise."""
    return tl.sum(tl.sum(tl.sum(x, axis=0), axis=3), axis=1)


@triton.jit
def distribution(masses, inside, mass):
    """Rows that sum to 1; the smallest mass stands for none, and 0 for the padding."""
    return tl.where(inside, tl.maximum(masses / mass, FLOOR), 0.0)


@triton.jit
def absorb(g, pointers):
    """The kernel with g in it and rows that sum to 1, and the log2 of what that took: exact in any range."""
    exponent = as_columns(g) - tl.load(pointers)
    highest = tl.max(tl.max(tl.max(exponent, axis=1), axis=4), axis=2)
    highest = tl.where(highest > float("-inf"), highest, 0.0)
    kernel = tl.exp2(exponent - as_rows(highest))
    sums = row_sums(kernel)
    sums = tl.where(sums > 0, sums, 1.0)  # 0 where a row's pairs are all forbidden
    return kernel * as_rows(1 / sums), -highest - tl.log2(sums)
