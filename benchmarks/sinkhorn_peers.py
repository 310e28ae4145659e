"""The problems and the solvers of benchmarks/sinkhorn.py.

A solver computes value and gradient to the logits, and returns a function that measures the error of what it found:
that part is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import geomloss
import torch
from torch import Tensor

import ot
from preceptor.ot import cost_matrix, sinkhorn, sinkhorn_distance

TOLERANCE = 1e-4
TEMPERATURE = 3.0


@dataclass
class Problem:
    """Logits and a cost as in distillation; "shared" classes put zeros on the cost's diagonal."""

    kind: str
    teacher: Tensor  # (B, m) logits
    student: Tensor  # (B, n) logits
    cost: Tensor  # (m, n)
    epsilon: float

    def sides(self) -> tuple[Tensor, Tensor]:
        """The teacher's and the student's softened predictions."""
        return torch.softmax(self.teacher / TEMPERATURE, 1), torch.softmax(self.student / TEMPERATURE, 1)


def make_problem(batch: int, m: int, n: int, kind: str, epsilon: float, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    count = max(m, n) if kind == "shared" else m + n
    families = normal(max(2, count // 5), 64)
    centers = 0.8 * families[torch.arange(count) % len(families)] + 0.6 * normal(count, 64)
    teacher, student = centers[:m], centers[:n] if kind == "shared" else centers[m:]
    cost = cost_matrix(teacher, student)
    teacher, student = (side / side.norm(dim=1, keepdim=True) for side in (teacher, student))
    features = student[torch.randint(n, (batch,), generator=generator)] + 0.1 * normal(batch, 64)
    features = features / features.norm(dim=1, keepdim=True)
    return Problem(
        kind,
        12 * features @ teacher.T + normal(batch, m),
        10 * features @ student.T + 2 * normal(batch, n),
        cost,
        epsilon,
    )


def marginal_error(plan: Tensor, p: Tensor, q: Tensor) -> float:
    rows, columns = (plan.sum(2) - p).abs().sum(1), (plan.sum(1) - q).abs().sum(1)
    return float((rows + columns).max())


def to_logits(beta: Tensor, q: Tensor) -> Tensor:
    """Prop. 4.2 with its 1 / temperature: what a solver without a gradient of its own needs on top."""
    return (beta - (beta * q).sum(1, keepdim=True)) * q / TEMPERATURE


def ours(problem: Problem) -> Callable[[], float]:
    student = problem.student.clone().requires_grad_()
    p = torch.softmax(problem.teacher / TEMPERATURE, 1)
    value = sinkhorn_distance(
        p, torch.softmax(student / TEMPERATURE, 1), problem.cost, problem.epsilon, TOLERANCE
    )
    torch.autograd.grad(value.mean(), student)
    return lambda: float(sinkhorn(*problem.sides(), problem.cost, problem.epsilon, TOLERANCE).error.max())


def bare_products(problem: Problem, iterations: int) -> None:
    """The floor: the matrix products of so many iterations and nothing else."""
    kernel = torch.exp(-problem.cost / problem.epsilon)
    v, u = torch.ones_like(problem.student), torch.ones_like(problem.teacher)
    out = torch.empty_like(v)
    for _ in range(iterations):
        torch.mm(v, kernel.T, out=u)
        torch.mm(u, kernel, out=out)


def automatic_differentiation(problem: Problem, iterations: int) -> Callable[[], float]:
    student = problem.student.clone().requires_grad_()
    p, q = torch.softmax(problem.teacher / TEMPERATURE, 1), torch.softmax(student / TEMPERATURE, 1)
    beta, epsilon, cost = torch.zeros_like(q), problem.epsilon, problem.cost
    for _ in range(iterations):
        alpha = epsilon * (p.log() - torch.logsumexp((beta[:, None, :] - cost) / epsilon, dim=2))
        beta = epsilon * (q.log() - torch.logsumexp((alpha[:, :, None] - cost) / epsilon, dim=1))
    plan = torch.exp((alpha[:, :, None] + beta[:, None, :] - cost) / epsilon)
    value = (plan * cost).sum((1, 2)) + epsilon * (plan * (plan.log() - 1)).sum((1, 2))
    torch.autograd.grad(value.mean(), student)
    return lambda: marginal_error(plan.detach(), p, q.detach())


def pot_loop(problem: Problem, setting: tuple[float, int]) -> Callable[[], float]:
    p, q = problem.sides()
    threshold, most = setting
    method = "sinkhorn" if problem.epsilon >= 0.05 else "sinkhorn_log"
    cost, a, b = problem.cost.double().numpy(), p.double().numpy(), q.double().numpy()
    a, b = a / a.sum(1, keepdims=True), b / b.sum(1, keepdims=True)
    plans, betas = [], []
    for row in range(len(a)):
        plan, log = ot.sinkhorn(
            a[row],
            b[row],
            cost,
            problem.epsilon,
            method=method,
            numItermax=most,
            stopThr=threshold,
            log=True,
            warn=False,
        )
        betas.append(torch.from_numpy(log["v"] if method == "sinkhorn" else log["log_v"]))
        plans.append(plan.sum(0))  # the columns' sums: the rows' are exact to the same threshold
    to_logits(torch.stack(betas), q.double())
    return lambda: float((torch.tensor(plans) - torch.from_numpy(b)).abs().sum(1).max())


def pot_batch(problem: Problem, setting: tuple[float, int]) -> Callable[[], float]:
    p, q = problem.sides()
    threshold, most = setting
    method = "sinkhorn" if problem.epsilon >= 0.05 else "log_sinkhorn"
    costs = problem.cost.expand(len(p), *problem.cost.shape).contiguous()
    answer = ot.solve_batch(
        costs, reg=problem.epsilon, a=p, b=q, max_iter=most, tol=threshold, method=method, grad="detach"
    )
    to_logits(answer.potentials[1], q)
    return lambda: marginal_error(answer.plan, p, q)


def geomloss_batch(problem: Problem, scaling: float) -> Callable[[], float]:
    student = problem.student.clone().requires_grad_()
    p, q = torch.softmax(problem.teacher / TEMPERATURE, 1), torch.softmax(student / TEMPERATURE, 1)
    cost = problem.cost
    settings = {
        "loss": "sinkhorn",
        "p": 1,
        "blur": problem.epsilon,
        "scaling": scaling,
        "diameter": float(cost.max()),
        "cost": lambda x, y: (cost if float(x[0, 0, 0]) == 0 else cost.T).expand(len(x), -1, -1),
        "debias": False,
        "backend": "tensorized",
    }
    # Places that say no more than which side they are on: the cost is asked for in both directions.
    points = p.new_zeros(len(p), p.shape[1], 1), q.new_ones(len(p), q.shape[1], 1)
    value = geomloss.SamplesLoss(**settings)(p, points[0], q, points[1])
    torch.autograd.grad(value.mean(), student)

    def error() -> float:
        with torch.no_grad():
            f, g = geomloss.SamplesLoss(**settings, potentials=True)(p, points[0], q, points[1])
            exponent = (f.view(p.shape)[:, :, None] + g.view(q.shape)[:, None, :] - cost) / problem.epsilon
            return marginal_error(exponent.exp() * p[:, :, None] * q[:, None, :], p, q)

    return error


def plain_iterations(problem: Problem, most: int) -> int:
    """How many plain iterations of Eq. (20) bring every row to the tolerance, `most` where more."""
    p, q = (side.double() for side in problem.sides())
    kernel = torch.exp(-problem.cost.double() / problem.epsilon)
    v = torch.ones_like(q)
    for iteration in range(1, most):
        s = (p / (v @ kernel.T)) @ kernel
        if float((v * s - q).abs().sum(1).max()) <= TOLERANCE:
            return iteration
        v = q / s
    return most
