"""Newton steps: quadratic near the optimum, never downhill, bounded."""

import torch
from torch.testing import assert_close

from preceptor.ot import sinkhorn
from preceptor.ot.newton import Newton, polish
from tests.oracles.ot import log_domain, problem


def test_a_newton_step_near_the_optimum_squares_the_error():
    p, q, cost = problem(6, 12, 10, kind="shared")
    start = sinkhorn(p, q, cost, 0.1, tolerance=1e-3).beta / 0.1
    newton = Newton(p, q, -cost / 0.1, start)
    errors = [newton.error]
    for _ in range(3):
        newton.step()
        errors.append(newton.error)
    assert bool((errors[1] < 0.1 * errors[0]).all())
    assert bool((errors[3] < 1e-9).all())


def test_newton_steps_never_lower_the_dual_value():
    p, q, cost = problem(6, 12, 12, kind="shared")
    newton = Newton(p, q, -cost / 0.005, torch.zeros_like(q))
    values = [newton.value]
    for _ in range(60):
        newton.step()
        values.append(newton.value)
    assert bool((torch.stack(values).diff(dim=0) >= -1e-9).all())
    assert bool((newton.error < 1e-4).all())


def test_newton_falls_back_on_a_plain_iteration(monkeypatch):
    p, q, cost = problem(3, 6, 5)
    newton = Newton(p, q, -cost / 0.1, torch.zeros_like(q))
    monkeypatch.setattr(Newton, "_direction", lambda self: 50 * (self.columns - self.q))  # downhill
    newton.step()
    _, beta = log_domain(p, q, cost, 0.1, 1)
    assert_close(newton.log_v - newton.log_v[:, :1], (beta - beta[:, :1]) / 0.1)


def test_polish_stops_at_its_limit_and_at_the_tolerance():
    p, q, cost = problem(6, 12, 12, kind="shared")
    *_, error, taken = polish(p, q, -cost / 0.01, torch.zeros_like(q), 1e-4, 2)
    assert taken == 2
    assert bool((error > 1e-4).any())
    log_u, log_v, error, taken = polish(p, q, -cost / 0.01, torch.zeros_like(q), 1e-6, 60)
    assert taken < 60
    assert bool((error <= 1e-6).all())
    plan = torch.exp(log_u[:, :, None] + log_v[:, None, :] - cost / 0.01)
    assert_close(plan.sum(dim=1), q, atol=1e-6, rtol=0)
    assert_close(plan.sum(dim=2), p, atol=1e-12, rtol=0)
