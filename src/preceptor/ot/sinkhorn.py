"""The Sinkhorn distance between batches of label distributions that share one cost matrix: Eq. (5).

The paper's p_T, p_S and M are `p`, `q` and `cost` here (docs/notation.md has all names). Here is what goes into Alg. 3
and what comes out of it; its iterations are in `scaling`, and `solver` says where other means take over.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .scaling import mass_floor
from .solver import normalise, solve
from .validation import check_options, check_problem, check_start


class SinkhornWarning(UserWarning):
    """Some problems of a batch did not reach the tolerance."""


@dataclass(frozen=True, eq=False)
class SinkhornResult:
    """The solution of B entropic transport problems, and how far it can be trusted.

    Three values go by the name of "Sinkhorn distance". `value` is the paper's: the optimum of Eq. (5),
    `<T, M> - epsilon H(T)` with `H(T) = -sum T (log T - 1)`, equal to `<alpha, p> + <beta, q> - epsilon`;
    it can be negative. `transport_cost` is its transport part `<T, M>`. The debiased divergence is
    `preceptor.ot.sinkhorn_divergence`.

    The potentials are defined up to a constant that moves from one to the other. Where a distribution has no
    mass the true potential is minus infinity; that of a mass of next to nothing stands there, so that everything
    stays finite.

    Potentials have the precision of p and q, and plans are made of them. In float32 they are right to about 1e-7
    of the range of the costs, so below an epsilon of 1e-5 of that range `plan()`, `mean_plan()` and `transport_cost`
    fall short of what `converged` says; `value` does not. Give such problems in float64.
    """

    value: Tensor  # (B,)
    alpha: Tensor  # (B, m)
    beta: Tensor  # (B, n)
    error: Tensor  # (B,) L1 distance between the plan's column sums and q; its row sums are p
    converged: Tensor  # (B,) whether error is within the tolerance
    iterations: int  # of the problem that took longest
    p: Tensor  # (B, m)
    cost: Tensor  # (m, n), in its own precision where that is finer than that of p
    epsilon: float

    def plan(self) -> Tensor:
        """The transport plans T of Eq. (18), (B, m, n)."""
        return _plan(self.p, self.beta, self._reduced(self.p.dtype), self.epsilon)

    def _reduced(self, precision: torch.dtype) -> Tensor:
        """The cost with its minimum taken out."""
        return (self.cost - self.cost.amin()).to(precision)

    def mean_plan(self) -> Tensor:
        """The mean of the B plans diag(u_i) K diag(v_i), Eq. (19), (m, n), without a single plan in memory.

        It is K * (U^T V) / B, two matrix products in all, in the precision of the problem. Where exp leaves its range
        they are taken in float64, and where that does not do either, plans are summed a few at a time.
        """
        for kind, smallest in ((self.p.dtype, 1e-30), (torch.float64, 1e-280)):
            beta = self.beta.to(kind) / self.epsilon
            scaling = torch.exp(beta - beta.amax(dim=1, keepdim=True))  # v_i, (B, n)
            # Rows of K may be scaled freely: u makes up for it.
            kernel = torch.exp(-(self.cost - self.cost.amin(dim=1, keepdim=True)).to(kind) / self.epsilon)
            sums = scaling @ kernel.T  # (B, m)
            if bool((sums > smallest).all()):  # not so for NaN, where all pairs of a row are forbidden
                # Row sums of a plan are p, so u = p / (K v).
                mean = kernel * ((self.p.to(kind) / sums).T @ scaling) / len(scaling)
                return mean.to(self.p.dtype)
        cost = self._reduced(torch.float64)
        rows = max(1, 2**18 // cost.numel())  # plans at a time
        total = torch.zeros_like(cost)
        for p, potential in zip(self.p.double().split(rows), self.beta.double().split(rows), strict=True):
            total += _plan(p, potential, cost, self.epsilon).sum(dim=0)
        return (total / len(scaling)).to(self.p.dtype)

    @cached_property
    def transport_cost(self) -> Tensor:
        """The transport part `<T, M>` of the value, (B,); computed when it is first asked for."""
        cost = self._reduced(self.p.dtype)
        payable = torch.where(cost.isinf(), 0, cost)  # forbidden pairs carry no mass
        rows = max(1, 2**18 // cost.numel())  # plans at a time
        parts = [
            (_plan(p, beta, cost, self.epsilon) * payable).sum(dim=(1, 2))
            for p, beta in zip(self.p.split(rows), self.beta.split(rows), strict=True)
        ]
        return torch.cat(parts) + self.cost.amin()

    def _repr_html_(self) -> str:
        """What a notebook shows: how good the solution is, and the mean plan."""
        from preceptor.notebook import MOST_CELLS, heat, table

        count, classes = len(self.value), self.cost.numel()
        if not count:
            return table(["Sinkhorn", f"epsilon {self.epsilon:g}"], [("problems", "none")])
        facts = [
            ("problems", f"{count}, {self.cost.shape[0]} x {self.cost.shape[1]} classes"),
            ("value, mean", float(self.value.mean())),
            ("transport cost, mean", float(self.transport_cost.mean())),
            ("marginal error, largest", float(self.error.max())),
            ("converged", f"{int(self.converged.sum())} of {count} in {self.iterations} iterations"),
        ]
        shown = table(["Sinkhorn", f"epsilon {self.epsilon:g}"], facts)
        return shown + (
            heat(self.mean_plan().tolist(), "mean transport plan") if classes <= MOST_CELLS else ""
        )


def sinkhorn(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float = 0.1,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
    beta0: Tensor | None = None,
) -> SinkhornResult:
    """Solve B entropic transport problems that share one cost matrix.

    Nothing is recorded for automatic differentiation: `sinkhorn_distance` is the differentiable one.

    Args:
        p: (B, m) distributions, the paper's p_T; each row sums to 1.
        q: (B, n) distributions, the paper's p_S.
        cost: (m, n) costs, the paper's M; +inf forbids a pair. They may be in a finer precision than p and q, which
            is that of the result: their minimum is taken out before they are rounded to it.
        epsilon: weight of the entropy, in the units of the cost.
        tolerance: the L1 marginal error at which a problem counts as solved. What it means for the gradient
            depends on epsilon: see docs/choosing.md.
        max_iterations: limit on the iterations of Eq. (20) and the Newton steps that may follow them.
        beta0: (B, n) potentials to start from, such as `.beta` of a similar problem.

    Returns:
        Values, potentials and their convergence. Problems that did not reach the tolerance are marked in
        `.converged`, and a `SinkhornWarning` says so; their numbers are finite.
    """
    check_options(epsilon, tolerance, max_iterations)
    check_problem(p, q, cost)
    if beta0 is not None:
        check_start(beta0, q)
    with torch.no_grad(), torch.autocast(p.device.type, enabled=False):
        p, q = normalise(p.detach()), normalise(q.detach()).clamp_min_(mass_floor(q.dtype))
        cost = cost.detach().to(torch.promote_types(cost.dtype, p.dtype))
        # Taken out, before the cost is rounded, and added back: a large offset would cost digits otherwise.
        offset = cost.amin()
        reduced = (cost - offset).to(p.dtype)
        solution = solve(p, q, reduced, epsilon, tolerance, max_iterations, beta0)
        # Eq. (13); the sum in it is over the plan, whose mass is 1.
        dual = (solution.alpha * p).sum(dim=1) + (solution.beta * q).sum(dim=1) - epsilon
        converged = solution.error <= tolerance
        if not bool(converged.all()):
            warnings.warn(
                "some Sinkhorn problems did not reach the tolerance, their values are approximate "
                "(.converged says which): raise max_iterations, tolerance or epsilon",
                SinkhornWarning,
                stacklevel=2,
            )
    return SinkhornResult(
        dual + offset,
        solution.alpha + offset,
        solution.beta,
        solution.error,
        converged,
        solution.iterations,
        p,
        cost,
        epsilon,
    )


def _plan(p: Tensor, beta: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    # Eq. (18); alpha makes the row sums p, so T is p times a softmax; NaN where a row's pairs are all forbidden.
    shares = torch.softmax((beta[:, None, :] - cost) / epsilon, dim=2).nan_to_num_(0)
    return p[:, :, None] * shares
