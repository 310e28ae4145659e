"""Alg. 3 in the scaling domain: one kernel for all problems, so that an iteration is two matrix products."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .acceleration import Anderson

LEVEL_ITERATIONS = 5  # on each coarser epsilon
LEVEL_FACTOR = 2.0
EASY_RANGE = 10.0  # costs up to so many epsilons need no coarser start
DROP_FRACTION = 1 / 8  # converged problems leave together: moving the others costs about an iteration


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
) -> tuple[Tensor, int]:
    """Potentials log v to start from, and the iterations spent: a few on each of some larger epsilons."""
    log_v = torch.zeros_like(q)
    if span <= 4 * EASY_RANGE:
        return log_v, 0
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
    """The iteration of Eq. (20) for the problems that are not solved yet, with Anderson steps between."""

    def __init__(self, p: Tensor, q: Tensor, kernel: Tensor, log_v: Tensor):
        self.kernel = kernel  # (m, n)
        self.p, self.q = p, q  # (B, m), (B, n); q positive
        self.log_q = self.q.log()
        self.log_v = _bounded(log_v)
        self.v = self.log_v.exp()
        self.rows = torch.arange(len(p), device=p.device)  # where the remaining problems stand in the batch
        self.history = Anderson(self.q)
        # Results for the whole batch.
        self.log_u = torch.zeros_like(p)
        self.best = torch.zeros_like(q)
        self.error = p.new_full((len(p),), math.inf)
        self.iterations = 0

    def run(self, tolerance: float, max_iterations: int) -> None:
        """Iterate until every problem is within the tolerance or the iterations are used up."""
        leaps = max_iterations - max_iterations // 20  # then plain iterations: a leap is no place to stop at
        every = 2 if self.p.device.type == "cpu" else 8  # each check waits for the device
        while len(self.rows):
            self.iterations += 1
            kernel_v = _positive(torch.mm(self.v, self.kernel.T))
            u = self.p / kernel_v  # Eq. (20)
            kernel_u = torch.mm(u, self.kernel)
            del u  # here and below: before more memory is asked for
            if self.iterations >= max_iterations:
                self._record(kernel_v, self._error(kernel_u), torch.ones_like(self.rows, dtype=torch.bool))
                break
            if self.iterations % every == 0:
                error = self._error(kernel_u)
                done = error <= tolerance
                if int(done.sum()) >= max(1, DROP_FRACTION * len(done)):
                    self._record(kernel_v, error, done)
                    kernel_v = self.v = kernel_v.new_empty(0)
                    kernel_u = self._keep(kernel_u, (~done).nonzero().squeeze(1))
            del kernel_v
            image = self.log_q - _positive(kernel_u).log()  # log of q ./ (K' u)
            self.history.remember(image, image - self.log_v)
            if self.iterations % 2 == 0 and self.iterations < leaps:
                self.log_v = _bounded(self.history.extrapolate())
                self.v = self.log_v.exp()
            else:
                self.log_v = image
                self.v = self.q / kernel_u  # Eq. (20)

    def _error(self, kernel_u: Tensor) -> Tensor:
        """The L1 distance between q and the plan's column sums v * (K' u), (B,)."""
        return torch.addcmul(self.q, self.v, kernel_u, value=-1).abs_().sum(dim=1)

    def _record(self, kernel_v: Tensor, error: Tensor, done: Tensor) -> None:
        """Write the results of the problems that are done to their places."""
        leave = done.nonzero().squeeze(1)
        places = self.rows[leave]
        log_p = self.p[leave].clamp_min_(mass_floor(error.dtype)).log_()
        self.log_u[places] = log_p - kernel_v[leave].log_()
        self.best[places] = self.log_v[leave]
        self.error[places] = error[leave]

    def _keep(self, kernel_u: Tensor, stay: Tensor) -> Tensor:
        """Go on with the problems in `stay` alone; returns their part of `kernel_u`."""
        self.rows = self.rows[stay]
        self.p, self.q, self.log_q = (part.index_select(0, stay) for part in (self.p, self.q, self.log_q))
        self.log_v = self.log_v.index_select(0, stay)
        self.history.keep(stay)
        return kernel_u.index_select(0, stay)


def _positive(product: Tensor) -> Tensor:
    """Keep a product of kernel and scaling away from 0, which it is where every pair is forbidden."""
    return product.clamp_min_(torch.finfo(product.dtype).tiny)


def _bounded(log_v: Tensor) -> Tensor:
    """Shift each row to the middle of the exponents that the precision has, and keep it inside."""
    log_v = log_v.sub((log_v.amax(dim=1, keepdim=True) + log_v.amin(dim=1, keepdim=True)).div_(2))
    limit = safe_range(log_v.dtype)
    return log_v.clamp_(-limit, limit)
