"""Newton steps in the log domain and in double precision, for problems that iterations do not finish."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST_REACH = 20.0  # the longest step of a class at the start, in units of epsilon
RIDGE = 1e-6  # times the error
HALVINGS = 16  # of a step that does not raise the dual value


class Newton:
    """Damped Newton steps on the semi-dual F(y) = <y, q> - <p, log(K exp y)>, a few dense problems at once.

    Its gradient is q less the plan's column sums c. Its Hessian, divided by sqrt(c) on both sides, is S'S - I
    with S = T / sqrt(p c'); the constants in its null space are held by a ridge that fades with the error.
    """

    def __init__(self, p: Tensor, q: Tensor, log_kernel: Tensor, log_v: Tensor):
        self.log_p = p.log()  # (b, m)
        self.p, self.q, self.log_kernel = p, q, log_kernel
        self.log_v = log_v
        self.reach = log_v.new_full((len(log_v), 1), FIRST_REACH)  # grows with each success
        self._evaluate()

    def _evaluate(self) -> None:
        scores = self.log_kernel + self.log_v[:, None, :]  # (b, m, n)
        normaliser = torch.logsumexp(scores, dim=2)  # (b, m) log of K v
        self.log_u = self.log_p - normaliser  # Eq. (20)
        self.share = scores.sub_(normaliser[:, :, None]).exp_()  # T / p
        self.columns = torch.bmm(self.p[:, None, :], self.share).squeeze(1)  # (b, n)
        self.error = (self.columns - self.q).abs().sum(dim=1)
        self.value = (self.log_v * self.q).sum(dim=1) - (normaliser * self.p).sum(dim=1)

    def step(self) -> None:
        """One step for each problem, halved until the dual value does not fall; else a plain iteration."""
        direction = self._direction()
        slope = (direction * (self.q - self.columns)).sum(dim=1)
        before, start = self.value, self.log_v
        plain = start + (self.q / self.columns.clamp_min(torch.finfo(self.q.dtype).tiny)).log()  # Eq. (20)
        length = torch.ones_like(before)
        for _ in range(HALVINGS):
            self.log_v = start + length[:, None] * direction
            self._evaluate()
            # Near the optimum the gain drowns in rounding: allow for that much.
            slack = 1e-14 * before.abs().clamp_min(1)
            worse = ~(self.value >= before + 1e-4 * length * slope - slack)
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        else:
            self.log_v = torch.where(worse[:, None], plain, self.log_v)
            self._evaluate()
        self.reach *= torch.where(length == 1, 4.0, 2 * length)[:, None]
        self.reach.clamp_(1.0, 1e6)

    def _direction(self) -> Tensor:
        columns = self.columns.clamp_min(torch.finfo(self.columns.dtype).tiny)
        root = columns.sqrt()
        scaled = self.share * self.p.sqrt()[:, :, None]
        scaled /= root[:, None, :]
        hessian = torch.bmm(scaled.transpose(1, 2), scaled).neg_()  # (b, n, n)
        ridge = RIDGE * self.error.clamp(1e-9, 1)
        hessian.diagonal(dim1=1, dim2=2).add_(1 + ridge[:, None])
        factor, failed = torch.linalg.cholesky_ex(hessian)
        residual = (self.q - self.columns) / root
        newton = torch.cholesky_solve(residual[:, :, None], factor).squeeze(2)
        # A plain iteration where rounding made the matrix indefinite. Classes with next to no mass ask for
        # steps without bound, each for itself: the limit is one for each class.
        direction = torch.where(failed[:, None] == 0, newton, residual) / root
        return direction.clamp(-self.reach, self.reach)


def polish(
    p: Tensor, q: Tensor, log_kernel: Tensor, log_v: Tensor, tolerance: float, steps: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Newton steps for all rows at once until their error is within the tolerance.

    Args:
        p: (b, m) float64, positive.
        q: (b, n) float64, positive.
        log_kernel: (m, n) float64, -M / epsilon.
        log_v: (b, n) where to start.
        tolerance: on the L1 error of the column sums.
        steps: how many at most.

    Returns:
        log u (b, m), log v (b, n), error (b,), steps taken.
    """
    log_u, solution, error = torch.zeros_like(p), log_v.clone(), p.new_full((len(p),), torch.inf)
    rows = torch.arange(len(p), device=p.device)
    newton = Newton(p, q, log_kernel, log_v)
    taken = 0
    while True:
        log_u[rows], solution[rows], error[rows] = newton.log_u, newton.log_v, newton.error
        left = newton.error > tolerance
        if taken >= steps or not bool(left.any()):
            return log_u, solution, error, taken
        if not bool(left.all()):
            rows = rows[left]
            reach, newton = newton.reach[left], Newton(p[rows], q[rows], log_kernel, newton.log_v[left])
            newton.reach = reach
        newton.step()
        taken += 1


def marginal_error(p: Tensor, q: Tensor, log_v: Tensor, log_kernel: Tensor) -> Tensor:
    """The L1 error of the column sums, (b,), under a kernel with zeros; a row of zeros loses its mass."""
    share = torch.softmax(log_v[:, None, :] + log_kernel, dim=2).nan_to_num_(0)
    return (torch.bmm(p[:, None, :], share).squeeze(1) - q).abs().sum(dim=1)
