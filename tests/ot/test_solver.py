"""The means of the solver: each has to do its part, and the solver has to choose the right one."""

import sys
import warnings

import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import SinkhornWarning, scaling, sinkhorn, solver
from preceptor.ot.acceleration import Anderson
from preceptor.ot.newton import Newton, polish
from preceptor.ot.scaling import Scaling, coarse_start, gibbs_kernel
from tests.oracles.ot import linear_program, log_domain, problem


@pytest.fixture
def means(monkeypatch):
    """The precisions of the scaling runs and the number of rows that Newton steps were asked for."""
    used = {"scale": [], "finish": []}
    scale, finish = solver._scale, solver._finish

    def record_scale(*arguments):
        used["scale"].append(arguments[-1])
        return scale(*arguments)

    def record_finish(*arguments):
        used["finish"].append(len(arguments[0]))
        return finish(*arguments)

    monkeypatch.setattr(solver, "_scale", record_scale)
    monkeypatch.setattr(solver, "_finish", record_finish)
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
    assert means["finish"] == []


def test_newton_steps_finish_what_iterations_do_not(means, monkeypatch):
    monkeypatch.setattr(solver, "_patience", lambda classes, iterations: 60)
    p, q, cost = problem(32, 40, 40, kind="shared", dtype=torch.float32)
    result = sinkhorn(p, q, cost, 0.01)
    assert len(means["finish"]) == 1
    assert 0 < means["finish"][0] <= 32
    assert bool(result.converged.all())
    measured = (result.plan().sum(dim=1) - q).abs().sum(dim=1)
    assert float(measured.max()) < 1.1e-4


def test_acceleration_saves_most_iterations(monkeypatch):
    p, q, cost = problem(32, 50, 50, kind="shared")
    fast = sinkhorn(p, q, cost, 0.1).iterations
    monkeypatch.setattr(Anderson, "extrapolate", lambda self: self.last)
    half = sinkhorn(p, q, cost, 0.1).iterations
    assert 2 * fast < half
    monkeypatch.setattr(scaling, "BEYOND", (0.0,))
    slow = sinkhorn(p, q, cost, 0.1).iterations
    assert half + 4 <= slow


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("span", [2e3, 1e5, 1e7])
def test_ranges_beyond_double_precision(dtype, span, means):
    p, q, cost = problem(4, 12, 10, kind="shared", dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SinkhornWarning)
        result = sinkhorn(p, q, cost * span * 1e-3, 1e-3)
    assert means["finish"] == [4]
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
    assert 18 < sum(sizes) <= 40


def test_anderson_solves_a_linear_map_of_as_many_dimensions_as_it_remembers():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    rates = torch.tensor([0.99, 0.9, 0.5, 0, 0, 0], dtype=torch.float64)
    matrix = basis @ torch.diag(rates) @ basis.T
    target = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    weight = torch.ones(2, 6, dtype=torch.float64)  # the norm of the symmetric map
    history, y = Anderson(weight), torch.zeros_like(target)
    for _ in range(5):
        image = target + (y - target) @ matrix
        history.remember(image, image - y)
        y = image
    assert_close(history.extrapolate(), target, atol=1e-5, rtol=0)


def test_anderson_takes_a_plain_step_without_history_and_where_nothing_moves():
    history = Anderson(torch.ones(2, 3) / 3)
    image, still = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), torch.zeros(2, 3)
    history.remember(image, still)
    assert_close(history.extrapolate(), image)
    history.remember(image, still)
    assert_close(history.extrapolate(), image)
    history.remember(image, torch.full((2, 3), torch.nan))
    assert_close(history.extrapolate(), image)


def test_newton_steps_respect_forbidden_pairs(monkeypatch, means):
    monkeypatch.setattr(solver, "_patience", lambda classes, iterations: 4)
    p, _, cost = problem(6, 10, 10, kind="shared")
    forbidden = torch.ones(10, 10).tril(-3).bool()
    cost[forbidden] = torch.inf
    allowed = (~forbidden).double()
    q = p @ (allowed / allowed.sum(dim=1, keepdim=True))  # so that there is a plan
    result = sinkhorn(p, q, cost, 0.02)
    assert means["finish"] == [6]
    assert bool(result.converged.all())
    plan = result.plan()
    assert float(plan[:, forbidden].max()) == 0
    assert_close(plan.sum(dim=1), q, atol=1e-4, rtol=0)


def test_converged_means_within_the_tolerance(monkeypatch):
    p, q, cost = problem(3, 5, 4)
    known = solver.solve(p, q, cost, 0.1, 1e-4, 1000, None)
    known.error = torch.tensor([1.0e-4, 1.01e-4, 0.0], dtype=torch.float64)
    monkeypatch.setattr(sys.modules["preceptor.ot.sinkhorn"], "solve", lambda *arguments: known)
    with pytest.warns(SinkhornWarning):
        assert sinkhorn(p, q, cost).converged.tolist() == [True, False, True]
