"""The scaling iterations: those of the paper, relaxed and accelerated, over what is not yet solved."""

import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import SinkhornWarning, scaling, sinkhorn
from preceptor.ot.acceleration import Anderson
from preceptor.ot.scaling import Scaling, coarse_start, gibbs_kernel
from tests.oracles.ot import log_domain, problem


def test_plain_iterations_are_those_of_the_paper(monkeypatch):
    monkeypatch.setattr(Anderson, "extrapolate", lambda self: self.last)
    monkeypatch.setattr(scaling, "BEYOND", (0.0,))
    p, q, cost = problem(4, 9, 7)
    for iterations in (5, scaling.COLD_LEAD + 4):
        with pytest.warns(SinkhornWarning):
            result = sinkhorn(p, q, cost, 0.2, tolerance=1e-12, max_iterations=iterations)
        _, beta = log_domain(p, q, cost, 0.2, iterations - 1)
        assert_close(result.beta - result.beta[:, :1], beta - beta[:, :1])
        assert result.iterations == iterations


def test_a_relaxed_iteration_goes_beyond_by_the_power():
    p, q, cost = problem(4, 9, 7)
    kernel = gibbs_kernel(cost, 0.2)
    for beyond in (0.0, 0.5, 1.5):
        state = Scaling(p, q, kernel, torch.zeros_like(q))
        plain = (q / ((p / kernel.sum(dim=1)) @ kernel)).log()  # from v = 1
        state._relax(state._iterate(), beyond)
        assert_close(state.v.log(), (1 + beyond) * plain)


def test_a_relaxed_iteration_is_bounded():
    p, q, cost = problem(4, 9, 7)
    state = Scaling(p, q, gibbs_kernel(cost, 0.2), torch.zeros_like(q))
    state.v[:, 0] = 1e-30
    plain = q / state._iterate()
    state._relax(state._iterate(), 1.5)
    assert_close(state.v[:, 0] / plain[:, 0], torch.full((4,), 64.0**1.5, dtype=torch.float64))


def relaxations(monkeypatch, p, q, cost, epsilon):
    """The powers that the iterations went beyond by."""
    powers, relax = [], Scaling._relax
    monkeypatch.setattr(
        Scaling, "_relax", lambda self, product, beyond: (powers.append(beyond), relax(self, product, beyond))
    )
    sinkhorn(p, q, cost, epsilon)
    return powers


def test_only_slow_problems_are_relaxed(monkeypatch):
    p, q, cost = problem(16, 40, 30)
    powers = relaxations(monkeypatch, p, q, cost, 0.1)
    assert powers[:4] == [0, 0.5, 1.5, 0]
    assert len(powers) <= scaling.COLD_LEAD
    powers = relaxations(monkeypatch, p, q, cost, 1.0)
    assert powers == [0] * len(powers) != []


def test_large_kernels_are_not_relaxed(monkeypatch):
    p, q, cost = problem(2, 300, 230)
    assert relaxations(monkeypatch, p, q, cost, 0.1) == []


def test_a_cold_start_needs_no_product_with_ones(monkeypatch):
    p, q, cost = problem(4, 9, 7)
    cold, ones = (Scaling(p, q, gibbs_kernel(cost, 0.2), start) for start in (None, torch.zeros_like(q)))
    for state in (cold, ones):
        state.run(1e-10, 200)
    assert_close(cold.best - cold.best[:, :1], ones.best - ones.best[:, :1], atol=1e-7, rtol=0)
    product, count = torch.mm, []
    monkeypatch.setattr(scaling.torch, "mm", lambda *a, **k: (count.append(1), product(*a, **k))[1])
    Scaling(p, q, gibbs_kernel(cost, 0.2)).run(1e-30, 1)
    assert len(count) == 1


def test_a_coarse_start_is_near_the_end():
    p, q, cost = problem(16, 30, 20, kind="shared")
    cost = cost - cost.min()
    epsilon = 0.01
    start, spent = coarse_start(p, q, cost, epsilon, float(cost.max()) / epsilon, 1000)
    assert spent == 25
    kernel = gibbs_kernel(cost, epsilon)

    def first_error(log_v):
        state = Scaling(p, q, kernel, log_v)
        state.run(1e-4, 1)
        return state.error.mean()

    assert first_error(start) < 0.5 * first_error(torch.zeros_like(q))
    assert coarse_start(p, q, cost, 1.0, 2.0, 1000)[1] == 0
    assert coarse_start(p, q, cost, epsilon, 200.0, 12)[1] == 10


def test_the_error_is_measured_when_it_is_due():
    lookout = scaling.Lookout(8, 1e-4, 1)
    error = torch.full((8,), 1.0)
    assert not lookout.enough(error, 1)
    assert lookout.next == 2
    assert not lookout.enough(error / 10, 2)  # three more such iterations would do
    assert (lookout.next, lookout.gain) == (3, pytest.approx(10))
    assert not lookout.enough(error / 11, 3)  # at this pace some 70 would: no longer than the longest wait
    assert lookout.next == 3 + scaling.LONGEST_WAIT
    error[0] = 0
    assert not lookout.enough(error, 11)  # one of eight is not worth a move
    error[1] = 0
    assert lookout.enough(error, 12)
    assert lookout.next == 13
    assert scaling.Lookout(8, 1e-4, 1).enough(torch.zeros(1), 100)


def test_converged_problems_leave_the_batch(monkeypatch):
    sizes = []
    product = torch.mm
    monkeypatch.setattr(
        scaling.torch, "mm", lambda a, b, out: (sizes.append(len(a)), product(a, b, out=out))[1]
    )
    p, q, cost = problem(64, 30, 20, kind="shared")
    assert bool(sinkhorn(p, q, cost, 0.05).converged.all())
    assert sizes[0] == 64
    assert sizes[-1] <= 16
    assert sizes == sorted(sizes, reverse=True)
