"""The Sinkhorn solver for CUDA where a problem is too large for one multiprocessor.

All problems share one kernel ``K = exp(-M / epsilon)``, so that an iteration of Eq. (20) is two matrix products and
two small launches. As in `triton_sinkhorn` iterations come in pairs, with the error measured and an Anderson step
taken at the end of each by the problems that are not solved. The host looks at one number every `PAIRS` pairs;
where a shape comes again, what lies between two looks is replayed as a CUDA graph (`recording`).
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

from . import recording
from .fused import SPAN
from .scaling import gibbs_kernel
from .triton_acceleration import HIGHEST, LOWEST, image_of, leap, total
from .triton_tiles import FLOOR

PATIENCE = 400  # iterations after which Newton steps are the better means
PAIRS = 2  # between two looks
COLD_PAIRS = 4  # before the first look, from a cold start: nothing gets to 1e-4 in fewer
SIZE = 1024  # elements that a program divides


@triton.jit
def _open(  # type: ignore[no-untyped-def]  # triton's own types, here and below
    p_ptr, q_ptr, beta0_ptr, own_p_ptr, own_q_ptr, start_ptr, start_v_ptr, history_ptr, cc_ptr,
    m, n, count, per_unit, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Both distributions of this program's problem, log2 v to start from, and a history of nothing."""
    problem = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, SIZE)
    mass = 0.0
    for start in range(0, m, SIZE):
        mass += tl.sum(tl.load(p_ptr + problem * m + start + k, mask=start + k < m, other=0.0), axis=0)
    for start in range(0, m, SIZE):
        part = tl.load(p_ptr + problem * m + start + k, mask=start + k < m, other=0.0) / mass
        tl.store(own_p_ptr + problem * m + start + k, tl.where(part < FLOOR, FLOOR, part), mask=start + k < m)
    j = tl.arange(0, BLOCK)
    at = problem * n + j
    q = tl.load(q_ptr + at, mask=j < n, other=0.0)
    q = q / tl.sum(q, axis=0)
    q = tl.where(q < FLOOR, FLOOR, q)  # NaN stays, as above
    z = tl.load(beta0_ptr + at, mask=j < n, other=0.0) * per_unit
    z -= tl.sum(tl.where(j < n, q * z, 0.0), axis=0)
    z = tl.where(z < LOWEST, LOWEST, tl.where(z > HIGHEST, HIGHEST, z))
    tl.store(own_q_ptr + at, q, mask=j < n)
    tl.store(start_ptr + at, z, mask=j < n)
    tl.store(start_v_ptr + at, tl.exp2(z), mask=j < n)
    for _ in range(4):
        tl.store(history_ptr + at, tl.zeros_like(z), mask=j < n)
        at += count
    tl.store(cc_ptr + problem, 0.0)


@triton.jit
def _close(  # type: ignore[no-untyped-def]
    p_ptr, q_ptr, u_ptr, z_ptr, offset_ptr, value_ptr, alpha_ptr, beta_ptr,
    m, n, epsilon, unit, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eq. (13) and the potentials of this program's problem."""
    problem = tl.program_id(0).to(tl.int64)
    offset = tl.load(offset_ptr)
    j = tl.arange(0, BLOCK)
    beta = tl.load(z_ptr + problem * n + j, mask=j < n, other=0.0) * unit
    tl.store(beta_ptr + problem * n + j, beta, mask=j < n)
    dual = tl.sum(beta * tl.load(q_ptr + problem * n + j, mask=j < n, other=0.0), axis=0)
    k = tl.arange(0, SIZE)
    for start in range(0, m, SIZE):
        alpha = unit * tl.log2(tl.load(u_ptr + problem * m + start + k, mask=start + k < m, other=1.0))
        dual += tl.sum(
            alpha * tl.load(p_ptr + problem * m + start + k, mask=start + k < m, other=0.0), axis=0
        )
        tl.store(alpha_ptr + problem * m + start + k, alpha + offset, mask=start + k < m)
    tl.store(value_ptr + problem, dual + (offset - epsilon))


@triton.jit
def _divide(p_ptr, u_ptr, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Eq. (20), first half, from K v: u = p ./ (K v), in place."""
    k = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    sums = tl.load(u_ptr + k, mask=k < count, other=1.0)
    sums = tl.where(sums < FLOOR, FLOOR, sums)
    tl.store(u_ptr + k, tl.load(p_ptr + k, mask=k < count, other=0.0) / sums, mask=k < count)


@triton.jit
def _step(  # type: ignore[no-untyped-def]
    q_ptr, received_ptr, start_ptr, z_ptr, v_ptr, residual_ptr, n, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eq. (20), second half, for the problem of this program: v = q ./ (K' u), z = log2 v."""
    problem = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)[None, None, :]
    at = problem * n + j
    q = tl.load(q_ptr + at, mask=j < n, other=0.0)
    image = image_of(q, tl.load(received_ptr + at, mask=j < n, other=0.0))
    residual = tl.sqrt(q) * (image - tl.load(start_ptr + at, mask=j < n, other=0.0))
    tl.store(residual_ptr + at, residual, mask=j < n)
    tl.store(z_ptr + at, image, mask=j < n)
    tl.store(v_ptr + at, tl.exp2(image), mask=j < n)


@triton.jit
def _measure_and_leap(  # type: ignore[no-untyped-def]
    q_ptr, received_ptr, z_ptr, v_ptr, residual_ptr, start_ptr, start_v_ptr,
    last_image_ptr, last_residual_ptr, image_c_ptr, c_ptr, cc_ptr, error_ptr, unsolved_ptr,
    n, tolerance, BLOCK: tl.constexpr,
):  # fmt: skip
    """The error of this program's problem, and where its next pair starts: after an Anderson step, unless solved."""
    problem = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)[None, None, :]
    at = problem * n + j
    q = tl.load(q_ptr + at, mask=j < n, other=0.0)
    received = tl.load(received_ptr + at, mask=j < n, other=0.0)
    start = tl.load(z_ptr + at, mask=j < n, other=0.0)
    error = total(tl.abs(tl.load(v_ptr + at, mask=j < n, other=0.0) * received - q))
    tl.store(error_ptr + problem, error)
    if error > tolerance:
        tl.atomic_add(unsolved_ptr, 1)
        start, last_image, last_residual, image_c, c, cc = leap(
            q,
            start,
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
    tl.store(start_ptr + at, start, mask=j < n)
    tl.store(start_v_ptr + at, tl.exp2(start), mask=j < n)


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


class Stages:
    """A solution in three stages that never ask the device anything: `begin`, `go_on` as often as needed, `end`.

    Args:
        p: (B, m).
        q: (B, n).
        cost: (m, n).
        beta0: (B, n), 0 for a cold start.
        epsilon: Weight of the entropy.
        tolerance: L1 marginal error at which a problem stops.
        first: Pairs of iterations in `begin`.
    """

    def __init__(
        self, p: Tensor, q: Tensor, cost: Tensor, beta0: Tensor, epsilon: float, tolerance: float, first: int
    ) -> None:
        self.inputs: tuple[Tensor, ...] = (p, q, cost, beta0)
        self.first = first
        self.epsilon, self.unit, self.tolerance = epsilon, epsilon * math.log(2), tolerance
        block = triton.next_power_of_2(q.shape[1])
        self.options = {"BLOCK": block, "num_warps": min(16, max(1, block // 256)), "enable_fp_fusion": True}

    def begin(self) -> None:
        """Kernel, starting point, and the first pairs."""
        p, q, cost, beta0 = self.inputs
        self.p, self.u = torch.empty_like(p), torch.empty_like(p)
        self.q, self.start, self.start_v, self.received, self.z, self.v, self.residual = (
            torch.empty_like(q) for _ in range(7)
        )
        # What `leap` hands on from pair to pair.
        history = q.new_empty(4, *q.shape)
        self.history = [*history, q.new_empty(len(q))]
        _open[(len(q),)](
            p, q, beta0, self.p, self.q, self.start, self.start_v, history, self.history[-1],
            p.shape[1], q.shape[1], q.numel(), 1 / self.unit, SIZE=SIZE, **self.options,
        )  # fmt: skip
        self.offset = cost.amin()
        highest = torch.where(cost.isinf(), self.offset, cost).amax()  # forbidden pairs are 0 in any range
        self.kernel = gibbs_kernel(cost - self.offset, self.epsilon)
        self.error = q.new_empty(len(q))
        too_wide = (highest - self.offset) / self.epsilon > SPAN
        self.report = torch.stack([torch.zeros_like(too_wide), too_wide]).int()  # unsolved problems, too wide
        self.go_on(self.first)

    def go_on(self, pairs: int = PAIRS) -> None:
        """So many pairs of iterations; the report is of the last."""
        n, rows = self.q.shape[1], (len(self.q),)
        state = (self.z, self.v, self.residual)
        for _ in range(pairs):
            self.report[:1].zero_()
            self._multiply(self.start_v)
            _step[rows](self.q, self.received, self.start, *state, n, **self.options)
            self._multiply(self.v)
            _measure_and_leap[rows](
                self.q, self.received, *state, self.start, self.start_v, *self.history, self.error, self.report,
                n, self.tolerance, **self.options,
            )  # fmt: skip

    def end(self) -> None:
        """Eq. (5) and the potentials."""
        self.alpha, self.beta = torch.empty_like(self.p), torch.empty_like(self.q)
        self.value = self.q.new_empty(len(self.q))
        _close[(len(self.q),)](
            self.p, self.q, self.u, self.z, self.offset, self.value, self.alpha, self.beta,
            self.p.shape[1], self.q.shape[1], self.epsilon, self.unit, SIZE=SIZE, **self.options,
        )  # fmt: skip

    def _multiply(self, v: Tensor) -> None:
        """Eq. (20): u = p ./ (K v), and K' u."""
        torch.mm(v, self.kernel.T, out=self.u)
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
    limit = max(PAIRS, min(max_iterations, PATIENCE) // 2)  # pairs
    done = first = min(limit, COLD_PAIRS if beta0 is None else PAIRS)
    start = torch.zeros_like(q) if beta0 is None else beta0
    with torch.autocast(p.device.type, enabled=False), _full_precision():
        inputs = tuple(x.contiguous() for x in (p, q, cost.to(p.dtype), start))
        with recording.stages(Stages, inputs, epsilon, tolerance, first) as run:
            run.begin()
            unsolved, too_wide = run.report.tolist()
            while unsolved and not too_wide and done + PAIRS <= limit:
                run.go_on()
                unsolved, too_wide = run.report.tolist()
                done += PAIRS
            run.end()
            found = [run.value, run.alpha, run.beta, run.error]
            if run.replayed:
                buffers, found = found, [torch.empty_like(x) for x in found]
                torch._foreach_copy_(found, buffers)  # one launch
    value, alpha, beta, error = found
    return LargeSolution(value, alpha, beta, error, 2 * done, unsolved, bool(too_wide))


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
