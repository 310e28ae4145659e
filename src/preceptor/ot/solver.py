"""The seam between the public functions and the ways to solve: validated tensors in, potentials out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from . import fused
from .newton import marginal_error, polish
from .scaling import Scaling, coarse_start, gibbs_kernel, mass_floor, safe_range

FINEST_FLOAT32 = 1e-5  # below this tolerance float32 cannot measure the error
NEWTON_STEPS = 100
WORKING_COPIES = 16  # of q that an iteration with its history holds
LEVEL_STEPS = 15  # Newton steps on each coarser epsilon
LEVEL_TOLERANCE = 1e-2
LEVEL_FACTOR = 2.0
LOST = 0.1  # an error from which Newton steps take longer than from nothing
COARSEST = 16.0  # the costs span so many of the first epsilon when they start from nothing


@dataclass
class Solution:
    """Potentials for the reduced cost (its minimum taken out) and how well they fit."""

    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,) L1 error of the plan's column sums
    iterations: int

    def improve(self, rows: Tensor, found: Solution) -> None:
        """Put other solutions of some rows in, where they are better."""
        better = found.error < self.error[rows]
        rows = rows[better]
        self.alpha[rows] = found.alpha[better].to(self.alpha.dtype)
        self.beta[rows] = found.beta[better].to(self.beta.dtype)
        self.error[rows] = found.error[better].to(self.error.dtype)
        self.iterations += found.iterations


def solve(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None,
) -> Solution:
    """Solve B problems with the fastest means that are safe.

    Scaling-domain iterations in the given precision do nearly all of the work. Double precision takes over
    where the kernel's range or the tolerance asks for it, and Newton steps in the log domain finish what is
    left.

    Args:
        p: (B, m) rows that sum to 1.
        q: (B, n) rows that sum to 1, positive: `mass_floor` stands for no mass.
        cost: (m, n) with minimum 0; +inf forbids a pair.
        epsilon: above 0.
        tolerance: on the L1 error of the plan's column sums.
        max_iterations: of Eq. (20) and Newton steps together.
        beta0: (B, n) potentials to start from, or None.
    """
    highest = float(cost.amax())
    if highest == math.inf:
        highest = float(torch.where(cost.isinf(), 0, cost).amax())
    wide = safe_range(torch.float64)
    # Too wide for float64: iterate on a coarser epsilon, then step to the given one in the log domain.
    reachable = max(epsilon, highest / wide)
    patience = _patience(q.shape[1], max_iterations)
    narrow = highest / reachable <= safe_range(p.dtype) and tolerance >= FINEST_FLOAT32
    precision = p.dtype if narrow else torch.float64
    if narrow and fused.takes(p, q) and (highest / epsilon <= fused.SPAN or not fused.is_large(p, q)):
        solution = _fuse(p, q, cost, reachable, tolerance, patience, beta0)
    else:
        solution = _scale(p, q, cost, reachable, highest, tolerance, patience, beta0, precision)
    if solution.iterations < max_iterations or reachable > epsilon:
        _finish(p, q, cost, epsilon, reachable, highest, tolerance, max_iterations, solution)
    return solution


def normalise(p: Tensor) -> Tensor:
    """Rows that sum to 1 as well as the precision allows."""
    return p / p.sum(dim=1, keepdim=True)


def _patience(classes: int, max_iterations: int) -> int:
    """When Newton steps, each of which costs about `classes` / 2 iterations, take over from iterations."""
    if max_iterations <= 2 * NEWTON_STEPS:
        return max_iterations
    return min(200 + 2 * classes, max_iterations - NEWTON_STEPS)


def _scale(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    highest: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None,
    precision: torch.dtype,
) -> Solution:
    """Accelerated iterations in the scaling domain."""
    kernel = gibbs_kernel(cost.to(precision), epsilon)
    rows = _rows_at_once(p, q, cost, precision)
    starts = repeat(None) if beta0 is None else beta0.split(rows)
    parts = []
    for p_part, q_part, start in zip(p.split(rows), q.split(rows), starts, strict=False):
        if precision != p.dtype:  # rows that sum to 1 in float32 miss a fine tolerance in float64
            p_part, q_part = normalise(p_part.to(precision)), normalise(q_part.to(precision))
        if start is None:
            span, budget = highest / epsilon, max_iterations // 2
            log_v, spent = coarse_start(p_part, q_part, cost.to(precision), epsilon, span, budget)
        else:
            log_v, spent = start.to(precision) / epsilon, 0
        state = Scaling(p_part, q_part, kernel, log_v)
        state.run(tolerance, max_iterations - spent)
        columns = (state.log_u.mul_(epsilon), state.best.mul_(epsilon), state.error)
        parts.append((*(column.to(p.dtype) for column in columns), spent + state.iterations))
    alpha, beta, error, iterations = zip(*parts, strict=True)
    if len(parts) == 1:
        return Solution(alpha[0], beta[0], error[0], iterations[0])
    return Solution(torch.cat(alpha), torch.cat(beta), torch.cat(error), max(iterations))


def _fuse(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    tolerance: float,
    max_iterations: int,
    beta0: Tensor | None,
) -> Solution:
    """All problems in one launch on a CUDA device, or in a few a pair of iterations where they are large."""
    if fused.is_large(p, q):
        from .triton_large import solve_large

        large = solve_large(p, q, cost, epsilon, tolerance, max_iterations, beta0)
        return Solution(large.alpha, large.beta, large.error, large.iterations)
    from .triton_sinkhorn import solve_fused

    found = solve_fused(p, q, cost, epsilon, tolerance, max_iterations, beta0)
    return Solution(found.alpha, found.beta, found.error, int(found.iterations.max()))


def _rows_at_once(p: Tensor, q: Tensor, cost: Tensor, precision: torch.dtype) -> int:
    """How many problems to iterate on together: double precision for float32 inputs would double the memory."""
    if precision == p.dtype:
        return max(1, len(p))
    inputs = (p.numel() + q.numel() + cost.numel()) * p.element_size()
    row = (WORKING_COPIES * q.shape[1] + 6 * p.shape[1]) * precision.itemsize
    return max(64, 6 * inputs // row)


def _finish(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    reachable: float,
    highest: float,
    tolerance: float,
    max_iterations: int,
    solution: Solution,
) -> None:
    """Newton steps from where the iterations came to; where that is nowhere, from nothing and with epsilon falling."""
    unsolved = (solution.error > tolerance) | (reachable > epsilon)
    if not bool(unsolved.any()):
        return
    near = (solution.error < LOST) | (solution.iterations >= max_iterations)
    solution.error[unsolved] = torch.inf  # until it is measured in the log domain, at the given epsilon
    coarse = max(epsilon, highest / COARSEST)
    starts = ((reachable, solution.beta, near), (coarse, torch.zeros_like(q), torch.ones_like(near)))
    for level, beta, these in starts:
        rows = ((solution.error > tolerance) & these).nonzero().squeeze(1)
        left = max_iterations - solution.iterations
        if len(rows) and (left > 0 or these is near):
            found = _step_down(p[rows], q[rows], cost, epsilon, level, highest, tolerance, left, beta[rows])
            solution.improve(rows, found)


def _step_down(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float,
    level: float,
    highest: float,
    tolerance: float,
    max_steps: int,
    beta0: Tensor,
) -> Solution:
    """Newton steps in the log domain and in float64, a few problems at a time to bound the memory.

    `beta0` belongs to the epsilon `level`, which is halved until it is the given one.
    """
    classes = q.shape[1]
    elements = max(2**15, (p.numel() + q.numel() + cost.numel()) // 2)
    count = max(1, elements // (classes * max(p.shape[1], classes)))
    # Forbidden pairs get a cost that no plan pays: infinity would give NaN where all pairs are forbidden.
    forbidden = bool(cost.isinf().any())
    finite = torch.where(cost.isinf(), 4 * highest + 1000 * epsilon, cost).double()
    floor = mass_floor(torch.float64)
    parts, longest = [], 0
    for p_part, q_part, beta in zip(p.split(count), q.split(count), beta0.split(count), strict=True):
        p_part, q_part = (normalise(part.double()).clamp_min(floor) for part in (p_part, q_part))
        beta, steps = beta.double(), 0
        now = level / LEVEL_FACTOR
        while now > epsilon and steps < max_steps:
            budget = min(LEVEL_STEPS, max_steps - steps)
            _, log_v, _, taken = polish(p_part, q_part, finite / -now, beta / now, LEVEL_TOLERANCE, budget)
            beta, steps = now * log_v, steps + taken
            now /= LEVEL_FACTOR
        budget = min(NEWTON_STEPS, max_steps - steps)
        log_u, log_v, error, taken = polish(
            p_part, q_part, finite / -epsilon, beta / epsilon, tolerance, budget
        )
        if forbidden:
            error = marginal_error(p_part, q_part, log_v, cost.double() / -epsilon)
        parts.append((epsilon * log_u, epsilon * log_v, error))
        longest = max(longest, steps + taken)
    alpha, beta, error = (torch.cat(column) for column in zip(*parts, strict=True))
    return Solution(alpha, beta, error, longest)
