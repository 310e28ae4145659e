"""Entropic transport done slowly and plainly: closed forms, linear programming, dense log-domain iterations."""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor


def log_domain(p: Tensor, q: Tensor, cost: Tensor, epsilon: float, iterations: int) -> tuple[Tensor, Tensor]:
    """Potentials after so many iterations of Eq. (20) in the log domain; differentiable, (B, m, n) memory."""
    beta = torch.zeros_like(q)
    for _ in range(iterations):
        alpha = epsilon * (p.log() - torch.logsumexp((beta[:, None, :] - cost) / epsilon, dim=2))
        beta = epsilon * (q.log() - torch.logsumexp((alpha[:, :, None] - cost) / epsilon, dim=1))
    return alpha, beta


def plan_of(alpha: Tensor, beta: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    """T of the paper's first-order condition."""
    return torch.exp((alpha[:, :, None] + beta[:, None, :] - cost) / epsilon)


def entropic_value(plan: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    """Eq. (5) of a given plan, with H(T) = -sum T (log T - 1) and 0 log 0 = 0."""
    entropy = -(torch.special.xlogy(plan, plan) - plan).sum(dim=(1, 2))
    return (plan * cost).sum(dim=(1, 2)) - epsilon * entropy


def linear_program(p: Tensor, q: Tensor, cost: Tensor) -> float | None:
    """The unregularised transport cost of one problem, None where forbidden pairs leave no plan."""
    m, n = cost.shape
    constraints = np.zeros((m + n, m * n))
    for i in range(m):
        constraints[i, i * n : (i + 1) * n] = 1
    for j in range(n):
        constraints[m + j, j::n] = 1
    flat = cost.double().numpy().ravel()
    allowed = np.isfinite(flat)
    bounds = [(0, None if ok else 0) for ok in allowed]
    sides = np.concatenate([p.double().numpy(), q.double().numpy()])
    answer = linprog(np.where(allowed, flat, 0), A_eq=constraints, b_eq=sides, bounds=bounds)
    return float(answer.fun) if answer.status == 0 else None


def problem(
    batch: int, m: int, n: int, *, kind: str = "disjoint", seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions and a cost as in distillation: centres on the unit sphere, a softmax with temperature 3.

    With kind "shared" both sides have the same classes, so that the cost is zero on the diagonal.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    count = max(m, n) if kind == "shared" else m + n
    families = normal(max(2, count // 5), 64)
    centers = 0.8 * families[torch.arange(count) % len(families)] + 0.6 * normal(count, 64)
    centers = centers / centers.norm(dim=1, keepdim=True)
    teacher, student = centers[:m], centers[:n] if kind == "shared" else centers[m:]
    labels = torch.randint(n, (batch,), generator=generator)
    features = student[labels] + 0.1 * normal(batch, 64)
    features = features / features.norm(dim=1, keepdim=True)
    p = torch.softmax((12 * features @ teacher.T + normal(batch, m)) / 3, dim=1)
    q = torch.softmax((10 * features @ student.T + 2 * normal(batch, n)) / 3, dim=1)
    cost = torch.cdist(teacher, student, compute_mode="donot_use_mm_for_euclid_dist")
    return p.to(dtype), q.to(dtype), cost.to(dtype)
