"""The solver chooses the right means, keeps its limits and says how far it came."""

import sys
import warnings

import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import SinkhornWarning, sinkhorn, solver
from tests.oracles.ot import linear_program, problem


@pytest.fixture
def means(monkeypatch):
    """The precisions of the scaling runs and the number of rows that Newton steps were asked for."""
    used = {"scale": [], "newton": []}
    scale, step_down = solver._scale, solver._step_down

    def record_scale(*arguments):
        used["scale"].append(arguments[-1])
        return scale(*arguments)

    def record_newton(*arguments):
        used["newton"].append(len(arguments[0]))
        return step_down(*arguments)

    monkeypatch.setattr(solver, "_scale", record_scale)
    monkeypatch.setattr(solver, "_step_down", record_newton)
    return used


@pytest.mark.parametrize(
    ("epsilon", "tolerance", "precision"),
    [(0.1, 1e-4, torch.float32), (0.005, 1e-4, torch.float64), (0.1, 1e-7, torch.float64)],
)
def test_precision_follows_range_and_tolerance(means, epsilon, tolerance, precision):
    p, q, cost = problem(8, 20, 15, dtype=torch.float32)
    result = sinkhorn(p, q, cost, epsilon, tolerance)
    assert means["scale"] == [precision]
    assert bool(result.converged.all())


def test_easy_problems_need_no_newton_steps(means):
    p, q, cost = problem(64, 50, 40, kind="shared", dtype=torch.float32)
    assert bool(sinkhorn(p, q, cost, 0.05).converged.all())
    assert means["newton"] == []


def test_newton_steps_finish_what_iterations_do_not(means, monkeypatch):
    monkeypatch.setattr(solver, "_patience", lambda classes, iterations: 60)
    p, q, cost = problem(32, 40, 40, kind="shared", dtype=torch.float32)
    result = sinkhorn(p, q, cost, 0.01)
    assert 0 < sum(means["newton"]) <= 32
    assert bool(result.converged.all())
    measured = (result.plan().sum(dim=1) - q).abs().sum(dim=1)
    assert float(measured.max()) < 1.1e-4


def test_newton_steps_respect_forbidden_pairs(monkeypatch, means):
    monkeypatch.setattr(solver, "_patience", lambda classes, iterations: 4)
    p, _, cost = problem(6, 10, 10, kind="shared")
    forbidden = torch.ones(10, 10).tril(-3).bool()
    cost[forbidden] = torch.inf
    allowed = (~forbidden).double()
    q = p @ (allowed / allowed.sum(dim=1, keepdim=True))  # so that there is a plan
    result = sinkhorn(p, q, cost, 0.02)
    assert sum(means["newton"]) == 6
    assert bool(result.converged.all())
    plan = result.plan()
    assert float(plan[:, forbidden].max()) == 0
    assert_close(plan.sum(dim=1), q, atol=1e-4, rtol=0)


def test_memory_of_newton_steps_is_bounded(monkeypatch):
    sizes = []
    original = solver.polish

    def record(p, *arguments):
        sizes.append(len(p))
        return original(p, *arguments)

    monkeypatch.setattr(solver, "polish", record)
    monkeypatch.setattr(solver, "_patience", lambda classes, iterations: 40)
    p, q, cost = problem(40, 60, 60, kind="shared")
    sinkhorn(p, q, cost, 0.01)
    assert max(sizes) == 2**15 // 3600
    assert sum(sizes) > 18


@pytest.mark.parametrize(("seed", "epsilon"), [(8, 0.001), (12, 0.002), (14, 0.001)])
def test_problems_that_the_iterations_lead_astray_are_solved(seed, epsilon):
    """The costs between common classes are small and those between others alike: iterations get lost on some."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(3 * torch.randn(64, 100, generator=generator), dim=1)
    q = torch.softmax(p.log()[:, :50] + torch.randn(64, 50, generator=generator), dim=1)
    cost = 0.7 + 0.9 * torch.rand(100, 50, generator=generator)
    cost[range(50), range(50)] = 0.05
    result = sinkhorn(p, q, cost, epsilon, max_iterations=5000)
    assert bool(result.converged.all())
    assert_close(result.plan().sum(dim=1), q, atol=2e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("span", [2e3, 1e5, 1e7])
def test_ranges_beyond_double_precision(dtype, span, means):
    p, q, cost = problem(4, 12, 10, kind="shared", dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SinkhornWarning)
        result = sinkhorn(p, q, cost * span * 1e-3, 1e-3)
    assert sum(means["newton"]) == 4
    for tensor in (result.value, result.alpha, result.beta, result.error, result.plan()):
        assert bool(tensor.isfinite().all())
    if span * torch.finfo(dtype).eps > 0.1:
        return  # the rounding of the potentials alone moves the plan
    optimum = [linear_program(a, b, cost) for a, b in zip(p, q, strict=True)]
    optimum = torch.tensor(optimum, dtype=dtype) * span * 1e-3
    slack = 1e-3 * span * 1e-3
    measured = result.transport_cost[result.error < 1e-3]
    assert len(measured) >= 3
    assert_close(measured, optimum[result.error < 1e-3], atol=slack, rtol=0.01)


def test_a_warm_start_saves_iterations():
    p, q, cost = problem(64, 50, 40)
    cold = sinkhorn(p, q, cost, 0.05)
    moved = torch.softmax(q.log() * 1.05, dim=1)
    warm, again = sinkhorn(p, moved, cost, 0.05, beta0=cold.beta), sinkhorn(p, moved, cost, 0.05)
    assert warm.iterations < again.iterations
    assert_close(warm.value, again.value, atol=1e-6, rtol=0)
    assert sinkhorn(p, q, cost, 0.05, beta0=cold.beta).iterations == 1  # the first look finds it solved


def test_a_wild_warm_start_is_survived():
    p, q, cost = problem(8, 12, 10)
    wild = 1e6 * torch.randn(8, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = sinkhorn(p, q, cost, 0.1, beta0=wild)
    assert bool(result.converged.all())


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 60, 130])
def test_the_limit_on_iterations_is_kept(limit):
    p, q, cost = problem(4, 20, 20, kind="shared")
    with pytest.warns(SinkhornWarning, match="did not reach the tolerance.*raise max_iterations"):
        result = sinkhorn(p, q, cost, 1e-3, tolerance=1e-30, max_iterations=limit)
    assert result.iterations <= limit
    assert not bool(result.converged.any())
    assert bool(result.value.isfinite().all())
    measured = (result.plan().sum(dim=1) - q).abs().sum(dim=1)
    assert_close(result.error, measured, rtol=1e-6, atol=1e-9)


def test_the_warning_says_the_same_each_time_so_that_python_shows_it_once():
    p, q, cost = problem(4, 20, 20, kind="shared")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for limit in (1, 2, 3):
            sinkhorn(p[:limit], q[:limit], cost, 1e-3, max_iterations=limit)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_converged_means_within_the_tolerance(monkeypatch):
    p, q, cost = problem(3, 5, 4)
    known = solver.solve(p, q, cost, 0.1, 1e-4, 1000, None)
    known.error = torch.tensor([1.0e-4, 1.01e-4, 0.0], dtype=torch.float64)
    monkeypatch.setattr(sys.modules["preceptor.ot.sinkhorn"], "solve", lambda *arguments: known)
    with pytest.warns(SinkhornWarning):
        assert sinkhorn(p, q, cost).converged.tolist() == [True, False, True]
