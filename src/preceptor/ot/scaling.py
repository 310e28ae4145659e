"""Alg. 3 in the scaling domain: one kernel for all problems, so that an iteration is two matrix products."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .acceleration import Anderson

LEVEL_ITERATIONS = 5  # on each coarser epsilon
LEVEL_FACTOR = 2.0
EASY_RANGE = 10.0  # costs up to so many epsilons need no coarser start
DROP_FRACTION = 1 / 4  # converged problems leave together: moving the others costs about an iteration
BEYOND = (1.5, 0.0, 0.5)  # powers of the first iterations, in turn: see docs/performance.md
COLD_LEAD, WARM_LEAD = 9, 6  # how many iterations these are
EASY_GAIN = 4.0  # where the first iteration lowers the error by so much, plain ones are best
SMALL_KERNEL = 2**16  # elements up to which the work of an Anderson step weighs more than a product
LARGEST_RATIO = 64.0  # of a class's scaling from one of them to the next, to be raised to a power
BEST_GAIN, LEAST_GAIN = 10.0, 1.05  # by which an iteration may be expected to lower the error
LONGEST_WAIT = 8  # iterations without a look at the error


def safe_range(dtype: torch.dtype) -> float:
    """How many epsilons the costs may span before the kernel's smallest entries are lost."""
    return -math.log(torch.finfo(dtype).tiny) - 2


def mass_floor(dtype: torch.dtype) -> float:
    """What stands for no mass at all: it keeps logarithms finite and is nothing beside any tolerance."""
    return 1e-30 if dtype == torch.float32 else 1e-200


def gibbs_kernel(cost: Tensor, epsilon: float) -> Tensor:
    """K = exp(-M / epsilon), (m, n); 0 for forbidden pairs."""
    return torch.exp(cost * (-1 / epsilon))


def coarse_start(
    p: Tensor, q: Tensor, cost: Tensor, epsilon: float, span: float, max_iterations: int
) -> tuple[Tensor | None, int]:
    """Potentials log v to start from, and the iterations spent: a few on each of some larger epsilons.

    None, which stands for v = 1, where the costs span too few epsilons for that to pay.
    """
    if span <= 4 * EASY_RANGE:
        return None, 0
    log_v = torch.zeros_like(q)
    levels = math.ceil(math.log(span / EASY_RANGE, LEVEL_FACTOR))
    levels = min(levels, max_iterations // LEVEL_ITERATIONS)
    log_q = q.log()
    for level in range(levels, 0, -1):
        kernel = gibbs_kernel(cost, epsilon * LEVEL_FACTOR**level)
        log_v = _bounded(log_v)
        for _ in range(LEVEL_ITERATIONS):
            u = p / _positive(torch.exp(log_v) @ kernel.T)  # Eq. (20)
            log_v = log_q - _positive(u @ kernel).log_()  # Eq. (20)
        log_v = log_v * LEVEL_FACTOR  # the same beta in units of the next epsilon
    return log_v, levels * LEVEL_ITERATIONS


class Scaling:
    """The iteration of Eq. (20) for the problems that are not solved yet, made faster in two ways.

    On label-sized problems a product is so cheap that an Anderson step costs more. There the first iterations
    go beyond the step of Eq. (20) by fixed powers, which takes no logarithm and no history. Anderson steps do
    the rest.
    Large results go to buffers that stay, since fresh memory costs as much as the arithmetic.
    """

    def __init__(self, p: Tensor, q: Tensor, kernel: Tensor, log_v: Tensor | None = None):
        self.kernel = kernel  # (m, n)
        self.p, self.q = p, q  # (B, m), (B, n); q positive
        self.cold = log_v is None  # start from v = 1, for which K v takes no product
        self.rows = torch.arange(len(p), device=p.device)  # where the remaining problems stand in the batch
        self._allocate()
        self.v = torch.ones_like(q) if log_v is None else _bounded(log_v.clone()).exp_()
        self.log_v: Tensor | None = None  # kept for Anderson steps only
        self.history: Anderson | None = None
        # Results for the whole batch.
        self.log_u = torch.zeros_like(p)
        self.best = torch.zeros_like(q)
        self.error = p.new_full((len(p),), math.inf)
        self.iterations = 0

    def _allocate(self) -> None:
        self.u, self.spare = torch.empty_like(self.p), torch.empty_like(self.q)
        self.products = [torch.empty_like(self.q), torch.empty_like(self.q)]  # of this iteration and the last

    def run(self, tolerance: float, max_iterations: int) -> None:
        """Iterate until every problem is within the tolerance or the iterations are used up."""
        leaps = max_iterations - max_iterations // 20  # then plain iterations: a leap is no place to stop at
        lead = (COLD_LEAD if self.cold else WARM_LEAD) if self.kernel.numel() <= SMALL_KERNEL else 0
        lookout = Lookout(len(self.rows), tolerance, 1 if self.p.device.type == "cpu" else 8)
        slow = False  # whether a plain iteration gains so little that going beyond it pays
        while len(self.rows):
            self.iterations += 1
            kernel_u = self._iterate()
            if self.iterations >= max_iterations:
                self._record(self._error(kernel_u), torch.ones_like(self.rows, dtype=torch.bool))
                break
            if self.iterations >= lookout.next:
                error = self._error(kernel_u)
                if lookout.enough(error, self.iterations):
                    self._record(error, error <= tolerance)
                    kernel_u = self._keep(kernel_u, (error > tolerance).nonzero().squeeze(1))
                    if not len(self.rows):
                        break
            leap = self.iterations < leaps
            slow = lookout.gain < EASY_GAIN if self.iterations == 2 else slow
            if self.iterations <= lead:
                self._relax(kernel_u, BEYOND[self.iterations % len(BEYOND)] if leap and slow else 0)
            else:
                self._accelerate(kernel_u, leap and (self.iterations - lead) % 2 == 0)

    def _iterate(self) -> Tensor:
        """Eq. (20): u = p ./ (K v), and K' u, (B, n)."""
        if self.cold and self.iterations == 1:
            self.u.copy_(self.kernel.sum(dim=1))
        else:
            torch.mm(self.v, self.kernel.T, out=self.u)
        torch.div(self.p, _positive(self.u), out=self.u)
        return torch.mm(self.u, self.kernel, out=self.products[self.iterations % 2])

    def _relax(self, kernel_u: Tensor, beyond: float) -> None:
        """Move v by Eq. (20) and beyond: times the ratio of new to old to a power of 0, 1/2 or 3/2."""
        new = torch.div(self.q, _positive(kernel_u), out=kernel_u)  # Eq. (20)
        if beyond:
            ratio = torch.div(new, self.v, out=self.spare).clamp_(1 / LARGEST_RATIO, LARGEST_RATIO)
            if beyond > 1:
                new.mul_(ratio)
            new.mul_(ratio.sqrt_())
        # Where pairs are forbidden a class that nothing can fill grows without end, and infinity times 0 is NaN.
        info = torch.finfo(new.dtype)
        self.v = new.clamp_(info.tiny, info.max)

    def _accelerate(self, kernel_u: Tensor, leap: bool) -> None:
        """Move v by Eq. (20), or by an Anderson step from the images of the last iterations."""
        if self.history is None or self.log_v is None:
            self.history, self.log_v, self.log_q = Anderson(self.q), self.v.log(), self.q.log()
            self.v = torch.empty_like(self.q)  # apart from the buffers of the products
        _positive(kernel_u)
        if not leap:
            torch.div(self.q, kernel_u, out=self.v)  # Eq. (20)
        image = torch.sub(self.log_q, kernel_u.log_(), out=kernel_u)  # log of q ./ (K' u)
        self.history.remember(image, torch.sub(image, self.log_v, out=self.spare))
        self.log_v = image
        if leap:
            self.log_v = _bounded(self.history.extrapolate())
            torch.exp(self.log_v, out=self.v)

    def _error(self, kernel_u: Tensor) -> Tensor:
        """The L1 distance between q and the plan's column sums v * (K' u), (B,)."""
        return torch.addcmul(self.q, self.v, kernel_u, value=-1, out=self.spare).abs_().sum(dim=1)

    def _record(self, error: Tensor, done: Tensor) -> None:
        """Write the results of the problems that are done to their places."""
        leave = done.nonzero().squeeze(1)
        places = self.rows[leave]
        self.log_u[places] = _positive(self.u[leave]).log_()
        self.best[places] = self.v[leave].log_() if self.log_v is None else self.log_v[leave]
        self.error[places] = error[leave]

    def _keep(self, kernel_u: Tensor, stay: Tensor) -> Tensor:
        """Go on with the problems in `stay` alone; returns their part of `kernel_u`."""
        del self.u, self.spare, self.products  # before more memory is asked for
        self.rows = self.rows[stay]
        self.p, self.q, self.v = (part.index_select(0, stay) for part in (self.p, self.q, self.v))
        if self.history is not None and self.log_v is not None:
            self.log_v, self.log_q = (part.index_select(0, stay) for part in (self.log_v, self.log_q))
            self.history.keep(stay)
        self._allocate()
        return torch.index_select(kernel_u, 0, stay, out=self.products[self.iterations % 2])


class Lookout:
    """When to measure the error: often enough to let problems go in time, no more, since it is no iteration."""

    def __init__(self, problems: int, tolerance: float, wait: int):
        self.problems, self.tolerance = problems, tolerance
        self.next = 1  # the iteration to look at
        self.wait = wait  # iterations between looks at least: on a GPU each one waits for the device
        self.gain = BEST_GAIN  # by which an iteration lowers the error
        self.last: tuple[int, float] | None = None

    def enough(self, error: Tensor, iteration: int) -> bool:
        """Whether enough problems are within the tolerance to let them go; sets the next look."""
        # The longer it took to come here, the longer the rest will take, and the fewer are worth a move.
        share = math.ceil(max(DROP_FRACTION * len(error), self.problems / max(iteration, 4)))
        reached = float(error.kthvalue(min(share, len(error))).values)
        self.next = iteration + self.wait
        if not reached > self.tolerance:
            self.last = None
            return True
        if self.last is not None:
            gain = (self.last[1] / reached) ** (1 / (iteration - self.last[0]))
            self.gain = min(max(gain, LEAST_GAIN), BEST_GAIN)
            due = math.log(reached / self.tolerance) / math.log(self.gain)
            self.next = iteration + min(max(self.wait, int(due / 2)), LONGEST_WAIT)
        self.last = (iteration, reached)
        return False


def _positive(product: Tensor) -> Tensor:
    """Keep a product of kernel and scaling away from 0, which it is where every pair is forbidden."""
    return product.clamp_min_(torch.finfo(product.dtype).tiny)


def _bounded(log_v: Tensor) -> Tensor:
    """Shift each row to the middle of the exponents that the precision has, and keep it inside; in place."""
    middle = log_v.amax(dim=1, keepdim=True).add_(log_v.amin(dim=1, keepdim=True)).div_(2)
    limit = safe_range(log_v.dtype)
    return log_v.sub_(middle).clamp_(-limit, limit)
