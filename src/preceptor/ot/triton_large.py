"""The Sinkhorn solver for CUDA where a problem is too large for one multiprocessor.

All problems share one kernel ``K = exp(-M / epsilon)``, so that an iteration of Eq. (20) is two matrix products and
two small launches. As in `triton_sinkhorn` iterations come in pairs, with the error measured and an Anderson step
taken at the end of each by the problems that are not solved. The host looks at one number a pair, of the pair
before the one it has just sent, so that the device never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .fused import SPAN
from .scaling import gibbs_kernel, mass_floor
from .triton_acceleration import HIGHEST, LOWEST, image_of, leap, total
from .triton_tiles import FLOOR

PATIENCE = 400  # iterations after which Newton steps are the better means
TOO_WIDE = 2**30  # added to the number of unsolved problems
SIZE = 1024  # elements that a program divides


@triton.jit
def _divide(p_ptr, u_ptr, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]  # triton's own types
    """Eq. (20), first half, from K v: u = p ./ (K v), in place."""
    k = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    sums = tl.load(u_ptr + k, mask=k < count, other=1.0)
    sums = tl.where(sums < FLOOR, FLOOR, sums)
    tl.store(u_ptr + k, tl.load(p_ptr + k, mask=k < count, other=0.0) / sums, mask=k < count)


@triton.jit
def _step(  # type: ignore[no-untyped-def]
    q_ptr, received_ptr, z_ptr, v_ptr, residual_ptr, n, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eq. (20), second half, for the problem of this program: v = q ./ (K' u)."""
    problem = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)[None, None, :]
    at = problem * n + j
    q = tl.load(q_ptr + at, mask=j < n, other=0.0)
    image = image_of(q, tl.load(received_ptr + at, mask=j < n, other=0.0))
    residual = tl.sqrt(q) * (image - tl.load(z_ptr + at, mask=j < n, other=0.0))
    tl.store(residual_ptr + at, residual, mask=j < n)
    tl.store(z_ptr + at, image, mask=j < n)
    tl.store(v_ptr + at, tl.exp2(image), mask=j < n)


@triton.jit(do_not_specialize=["pair", "pairs"])
def _measure_and_leap(  # type: ignore[no-untyped-def]
    q_ptr, received_ptr, z_ptr, v_ptr, residual_ptr,
    last_image_ptr, last_residual_ptr, image_c_ptr, c_ptr, cc_ptr, error_ptr, unsolved_ptr,
    n, tolerance, pair, pairs, BLOCK: tl.constexpr,
):  # fmt: skip
    """The error of this program's problem; an Anderson step unless it is solved or this is the last pair."""
    problem = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)[None, None, :]
    at = problem * n + j
    q = tl.load(q_ptr + at, mask=j < n, other=0.0)
    received = tl.load(received_ptr + at, mask=j < n, other=0.0)
    error = total(tl.abs(tl.load(v_ptr + at, mask=j < n, other=0.0) * received - q))
    tl.store(error_ptr + problem, error)
    if error > tolerance:
        tl.atomic_add(unsolved_ptr + pair, 1)
        if pair + 1 < pairs:
            z, last_image, last_residual, image_c, c, cc = leap(
                q,
                tl.load(z_ptr + at, mask=j < n, other=0.0),
                tl.load(residual_ptr + at, mask=j < n, other=0.0),
                image_of(q, received),
                tl.load(last_image_ptr + at, mask=j < n, other=0.0),
                tl.load(last_residual_ptr + at, mask=j < n, other=0.0),
                tl.load(image_c_ptr + at, mask=j < n, other=0.0),
                tl.load(c_ptr + at, mask=j < n, other=0.0),
                tl.load(cc_ptr + problem),
            )
            tl.store(last_image_ptr + at, last_image, mask=j < n)
            tl.store(last_residual_ptr + at, last_residual, mask=j < n)
            tl.store(image_c_ptr + at, image_c, mask=j < n)
            tl.store(c_ptr + at, c, mask=j < n)
            tl.store(cc_ptr + problem, cc)
            tl.store(z_ptr + at, z, mask=j < n)
            tl.store(v_ptr + at, tl.exp2(z), mask=j < n)


@dataclass(frozen=True)
class LargeSolution:
    """Eq. (5) and potentials of all problems, the L1 error of their column marginals."""

    value: Tensor  # (B,)
    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,)
    iterations: int
    unsolved: int  # problems above the tolerance
    too_wide: bool  # the costs span more than `fused.SPAN` epsilons: the numbers mean nothing


class _Pairs:
    """The iteration of all problems and its buffers."""

    def __init__(self, p: Tensor, q: Tensor, kernel: Tensor, z: Tensor | None, pairs: int):
        self.p, self.q, self.kernel = p, q, kernel
        self.u, self.received = torch.empty_like(p), torch.empty_like(q)
        self.z = torch.zeros_like(q) if z is None else z
        self.v = torch.exp2(self.z)
        self.residual = torch.empty_like(q)
        self.history = [*(torch.zeros_like(q) for _ in range(4)), q.new_zeros(len(q))]  # what `leap` hands on
        self.error = q.new_empty(len(q))
        self.unsolved = torch.zeros(pairs, dtype=torch.int32, device=q.device)
        block = triton.next_power_of_2(q.shape[1])
        self.options = {"BLOCK": block, "num_warps": min(16, max(1, block // 256)), "enable_fp_fusion": True}

    def run(self, pair: int, tolerance: float) -> None:
        """Launch one pair of iterations."""
        n, rows = self.q.shape[1], (len(self.q),)
        state = (self.q, self.received, self.z, self.v, self.residual)
        self._multiply()
        _step[rows](*state, n, **self.options)
        self._multiply()
        _measure_and_leap[rows](
            *state,
            *self.history,
            self.error,
            self.unsolved,
            n,
            tolerance,
            pair,
            len(self.unsolved),
            **self.options,
        )

    def _multiply(self) -> None:
        """Eq. (20): u = p ./ (K v), and K' u."""
        torch.mm(self.v, self.kernel.T, out=self.u)
        _divide[(triton.cdiv(self.u.numel(), SIZE),)](
            self.p, self.u, self.u.numel(), SIZE=SIZE, enable_fp_fusion=True
        )
        torch.mm(self.u, self.kernel, out=self.received)


def solve_large(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None = None,
) -> LargeSolution:
    """Solve B problems; arguments are those of `triton_sinkhorn.solve_fused`."""
    unit = epsilon * math.log(2)
    pairs = max(1, min(max_iterations, PATIENCE) // 2)
    with torch.autocast(p.device.type, enabled=False), _full_precision():
        p, q = (_distribution(side) for side in (p, q))
        cost = cost.to(p.dtype)
        offset = cost.amin()
        iteration = _Pairs(p, q, gibbs_kernel(cost - offset, epsilon), _start(beta0, q, unit), pairs)
        highest = torch.where(cost.isinf(), offset, cost).amax()  # forbidden pairs are 0 in any range
        iteration.unsolved[0] = ((highest - offset) / epsilon > SPAN) * TOO_WIDE
        reports: list[_Report] = []
        for pair in range(pairs):
            iteration.run(pair, tolerance)
            reports.append(_Report(iteration.unsolved[pair]))
            if pair and not 0 < reports[pair - 1].read() < TOO_WIDE:
                reports.pop()  # the pair sent ahead changed nothing that matters
                break
        unsolved = reports[-1].read()
    too_wide = reports[0].read() >= TOO_WIDE
    alpha, beta = iteration.u.log_().mul_(epsilon), iteration.z.mul_(unit)
    value = (alpha * p).sum(1) + (beta * q).sum(1) + (offset - epsilon)  # Eq. (13)
    return LargeSolution(value, alpha + offset, beta, iteration.error, 2 * len(reports), unsolved, too_wide)


class _Report:
    """A number on its way from the device, which does not wait until it is read."""

    def __init__(self, number: Tensor):
        self.number = number.to("cpu", non_blocking=True)
        self.arrived = torch.cuda.Event() if number.is_cuda else None
        if self.arrived is not None:
            self.arrived.record()

    def read(self) -> int:
        """The number, once it has arrived."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return int(self.number)


def _distribution(side: Tensor) -> Tensor:
    return (side / side.sum(dim=1, keepdim=True)).clamp_min_(mass_floor(side.dtype))


def _start(beta0: Tensor | None, q: Tensor, unit: float) -> Tensor | None:
    """log2 v in the middle of the range."""
    if beta0 is None:
        return None
    z = beta0 / unit
    return (z - (q * z).sum(dim=1, keepdim=True)).clamp_(LOWEST.value, HIGHEST.value)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Products in float32 whatever the user allows elsewhere: in TensorFloat32 no error would reach 1e-4."""
    products = torch.backends.cuda.matmul
    name, exact = ("fp32_precision", "ieee") if hasattr(products, "fp32_precision") else ("allow_tf32", False)
    allowed = getattr(products, name)
    setattr(products, name, exact)
    try:
        yield
    finally:
        setattr(products, name, allowed)
