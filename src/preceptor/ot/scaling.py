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
    log_q = q.clamp_min(mass_floor(q.dtype)).log_()
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
        self.p, self.q = p, q.clamp_min(mass_floor(q.dtype))  # (B, m), (B, n)
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
        every = 2 if self.p.device.type == "cpu" else 8  # each check waits for the device
        while len(self.rows):
            self.iterations += 1
            last = self.iterations >= max_iterations
            kernel_v = _positive(torch.mm(self.v, self.kernel.T))
            u = self.p / kernel_v  # Eq. (20)
            kernel_u = _positive(torch.mm(u, self.kernel))
            if last or self.iterations % every == 0:
                kernel_u = self._check(u, kernel_v, kernel_u, tolerance, last)
                if last or not len(self.rows):
                    break
            image = self.log_q - torch.log(kernel_u)  # log of q ./ (K' u)
            self.history.remember(image, image - self.log_v)
            if self.iterations % 2 == 0:
                self.log_v = _bounded(self.history.extrapolate())
                self.v = self.log_v.exp()
            else:
                self.log_v = image
                self.v = self.q / kernel_u  # Eq. (20)

    def _check(self, u: Tensor, kernel_v: Tensor, kernel_u: Tensor, tolerance: float, last: bool) -> Tensor:
        """Measure the error; solved problems leave the batch. Returns what is left of `kernel_u`."""
        error = torch.addcmul(self.q, self.v, kernel_u, value=-1).abs_().sum(dim=1)
        done = error <= tolerance
        count = int(done.sum())
        if not last and count < max(1, DROP_FRACTION * len(done)):
            return kernel_u
        leave = torch.arange(len(done), device=done.device) if last else done.nonzero().squeeze(1)
        places = self.rows[leave]
        log_p = self.p[leave].clamp_min_(mass_floor(u.dtype)).log_()
        self.log_u[places] = log_p - kernel_v[leave].log_()
        self.best[places] = self.log_v[leave]
        self.error[places] = error[leave]
        stay = torch.zeros_like(self.rows[:0]) if last else (~done).nonzero().squeeze(1)
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
    log_v = log_v - (log_v.amax(dim=1, keepdim=True) + log_v.amin(dim=1, keepdim=True)) / 2
    limit = safe_range(log_v.dtype)
    return log_v.clamp_(-limit, limit)
