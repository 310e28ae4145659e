"""The value and the plan against closed forms, linear programming and POT."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch.testing import assert_close

import ot
from preceptor.ot import SinkhornWarning, sinkhorn
from tests.oracles.ot import entropic_value, linear_program, log_domain, plan_of, problem

KINDS = ["disjoint", "shared"]


def test_a_large_epsilon_gives_the_product_plan():
    p, q, cost = problem(4, 7, 5)
    result = sinkhorn(p, q, cost, epsilon=1e5, tolerance=1e-9)
    assert_close(result.plan(), p[:, :, None] * q[:, None, :], rtol=1e-4, atol=1e-7)


def test_a_small_epsilon_gives_the_assignment():
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    uniform = torch.full((1, 6), 1 / 6, dtype=torch.float64)
    rows, columns = linear_sum_assignment(cost.numpy())
    expected = torch.zeros(6, 6, dtype=torch.float64)
    expected[rows, columns] = 1 / 6
    result = sinkhorn(uniform, uniform, cost, epsilon=1e-3, tolerance=1e-8)
    assert_close(result.plan()[0], expected, atol=1e-5, rtol=0)
    assert_close(result.transport_cost[0], (expected * cost).sum(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_epsilon_gives_the_linear_program(kind):
    p, q, cost = problem(3, 8, 6, kind=kind)
    result = sinkhorn(p, q, cost, epsilon=1e-3, tolerance=1e-7)
    for row in range(3):
        optimum = linear_program(p[row], q[row], cost)
        entropy_at_most = 1e-3 * math.log(8 * 6)
        assert optimum - 1e-6 <= float(result.transport_cost[row]) <= optimum + entropy_at_most


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_it_agrees_with_pot(kind, epsilon):
    p, q, cost = problem(4, 20, 15, kind=kind)
    result = sinkhorn(p, q, cost, epsilon, tolerance=1e-10)
    plans = torch.stack(
        [
            ot.sinkhorn(a, b, cost, epsilon, method="sinkhorn_log", stopThr=1e-12, numItermax=100_000)
            for a, b in zip(p, q, strict=True)
        ]
    )
    assert_close(result.plan(), plans, atol=1e-8, rtol=0)
    assert_close(result.transport_cost, (plans * cost).sum(dim=(1, 2)), atol=1e-8, rtol=0)
    assert_close(result.value, entropic_value(plans, cost, epsilon), atol=1e-9, rtol=0)


def test_the_potentials_make_the_plan_and_the_value():
    p, q, cost = problem(5, 9, 7)
    result = sinkhorn(p, q, cost, tolerance=1e-10)
    assert_close(plan_of(result.alpha, result.beta, cost, 0.1), result.plan(), atol=1e-12, rtol=0)
    dual = (result.alpha * p).sum(1) + (result.beta * q).sum(1) - 0.1
    assert_close(dual, result.value)
    assert_close(result.value, entropic_value(result.plan(), cost, 0.1))


def test_swapping_the_sides_transposes_the_plan():
    p, q, cost = problem(5, 9, 7)
    one, other = sinkhorn(p, q, cost, tolerance=1e-10), sinkhorn(q, p, cost.T, tolerance=1e-10)
    assert_close(one.plan(), other.plan().mT, atol=1e-9, rtol=0)
    assert_close(one.value, other.value)


@pytest.mark.parametrize("factor", [0.01, 7.0, 1e4])
def test_scaling_cost_and_epsilon_scales_the_value(factor):
    p, q, cost = problem(5, 9, 7)
    one, other = sinkhorn(p, q, cost, 0.05), sinkhorn(p, q, factor * cost, factor * 0.05)
    assert_close(factor * one.value, other.value)
    assert_close(one.plan(), other.plan())


def test_an_offset_of_the_cost_moves_the_value_and_costs_no_digits():
    p, q, cost = (tensor.float() for tensor in problem(5, 9, 7))
    plain, moved = sinkhorn(p, q, cost), sinkhorn(p, q, cost + 512.0)
    assert_close(plain.beta, moved.beta, atol=2e-4, rtol=0)
    assert_close(plain.plan(), moved.plan(), atol=1e-4, rtol=0)
    assert_close(plain.value + 512, moved.value)
    assert_close(plain.transport_cost + 512, moved.transport_cost)
    assert_close(plain.alpha + 512, moved.alpha, atol=2e-4, rtol=0)


@pytest.mark.parametrize("epsilon", [0.1, 0.001])
def test_an_offset_that_only_the_costs_precision_can_hold_costs_no_digits(epsilon):
    p, q, cost = problem(5, 9, 7)
    p, q = p.float(), q.float()
    plain, moved = (
        sinkhorn(p, q, costs, epsilon, tolerance=1e-7, max_iterations=5000)
        for costs in (cost, cost + 2.0**27)
    )
    assert {tensor.dtype for tensor in (moved.value, moved.beta, moved.plan(), moved.mean_plan())} == {
        p.dtype
    }
    beta, moved_beta = (found.beta - found.beta.mean(dim=1, keepdim=True) for found in (plain, moved))
    assert_close(beta, moved_beta, atol=1e-6, rtol=0)
    assert_close(plain.plan(), moved.plan(), atol=1e-4, rtol=0)
    assert_close(plain.mean_plan(), moved.mean_plan(), atol=1e-4, rtol=0)
    assert_close(plain.value + 2.0**27, moved.value)
    assert_close(plain.transport_cost + 2.0**27, moved.transport_cost)


def test_a_negative_cost_is_as_good_as_any():
    p, q, cost = problem(3, 5, 4)
    assert_close(sinkhorn(p, q, cost - 3).value, sinkhorn(p, q, cost).value - 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_float32_agrees_with_float64(kind, epsilon):
    p, q, cost = problem(32, 40, 30, kind=kind)
    single = sinkhorn(p.float(), q.float(), cost.float(), epsilon)
    double = sinkhorn(p, q, cost, epsilon, tolerance=1e-9)
    assert single.value.dtype == single.alpha.dtype == single.error.dtype == torch.float32
    assert bool(single.converged.all())
    assert_close(single.value.double(), double.value, atol=1e-4 * epsilon + 1e-6, rtol=2e-5)
    assert_close(single.transport_cost.double(), double.transport_cost, atol=2e-4, rtol=0)
    assert_close(single.plan().double(), double.plan(), atol=2e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [1.0, 0.01, 0.001])
def test_zero_mass_and_one_hot_rows(dtype, epsilon):
    p, q, cost = problem(6, 12, 10, dtype=dtype)
    p[0] = torch.eye(12)[3]
    q[1] = torch.eye(10)[2]
    p[2], q[2] = torch.eye(12)[1], torch.eye(10)[9]
    p[3, ::2], q[3, 1::2] = 0, 0
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
    result = sinkhorn(p, q, cost, epsilon)
    assert bool(result.converged.all())
    plan = result.plan()
    assert_close(plan.sum(dim=2), p, atol=1e-6, rtol=0)
    assert float((plan.sum(dim=1) - q).abs().sum(dim=1).max()) < 2e-4
    # With one side one-hot there is one plan only.
    assert_close(plan[0, 3], q[0], atol=1e-4, rtol=0)
    assert_close(plan[1, :, 2], p[1], atol=1e-4, rtol=0)
    assert_close(result.transport_cost[2], cost[1, 9], atol=1e-4, rtol=0)
    assert float(plan[3, ::2].sum()) < 1e-20
    assert float(plan[3, :, 1::2].sum()) < 1e-20
    for tensor in (result.value, result.alpha, result.beta):
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_pairs_carry_nothing_and_infeasible_rows_are_marked(dtype):
    generator = torch.Generator().manual_seed(1)
    p, q, cost = problem(16, 8, 6, dtype=dtype)
    cost[torch.rand(8, 6, generator=generator) < 0.45] = math.inf
    with pytest.warns(SinkhornWarning):
        result = sinkhorn(p, q, cost, 0.1)
    feasible = torch.tensor([linear_program(a, b, cost) is not None for a, b in zip(p, q, strict=True)])
    assert 0 < int(feasible.sum()) < 16
    assert result.converged.tolist() == feasible.tolist()
    plan = result.plan()
    assert float(plan[:, cost.isinf()].max()) == 0
    error = (plan.sum(dim=1) - q).abs().sum(dim=1)
    assert_close(error, result.error, atol=1e-5, rtol=1e-3)
    for tensor in (result.value, result.alpha, result.beta, result.transport_cost, plan):
        assert bool(tensor.isfinite().all())


@pytest.mark.filterwarnings("ignore::preceptor.ot.SinkhornWarning")
@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("scale", "epsilon"), [(1.0, 0.1), (1.0, 0.01), (400.0, 0.1)])
def test_the_mean_plan_is_the_mean_of_the_plans(scale, epsilon, dtype, forbidden):
    p, q, cost = problem(9, 5, 3, dtype=dtype)
    cost = cost * scale
    if forbidden:
        cost[0, 1] = cost[3] = math.inf
    result = sinkhorn(p, q, cost, epsilon, max_iterations=30)
    error = 1e-6 if dtype == torch.float64 else 1e-4 * scale
    found = result.mean_plan()
    assert found.dtype == dtype
    assert_close(found, result.plan().mean(dim=0), atol=1e-3 * error, rtol=error)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_at_a_minute_epsilon_float32_keeps_the_value_and_float64_the_plan_as_well(epsilon):
    p, q, cost = problem(8, 6, 5)
    double, single = sinkhorn(p, q, cost, epsilon), sinkhorn(p.float(), q.float(), cost.float(), epsilon)
    assert bool(double.converged.all() & single.converged.all())
    assert_close(single.value.double(), double.value, atol=1e-6, rtol=0)
    assert float((double.plan().sum(dim=1) - q).abs().sum(dim=1).max()) <= 1.1e-4


def test_a_class_that_may_go_nowhere_is_marked():
    p, q, cost = problem(3, 5, 4)
    cost[2] = math.inf
    with pytest.warns(SinkhornWarning):
        result = sinkhorn(p, q, cost)
    assert not bool(result.converged.any())
    assert_close(result.error, p[:, 2], atol=0.1, rtol=0)
    assert bool(result.plan().isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classes_that_nothing_can_fill_leave_the_numbers_finite(dtype):
    # The first two classes of q may take from rows of little mass alone, and their scaling grows without end.
    cost = torch.tensor(
        [
            [math.inf, 0.4, 0.1, 0.2],
            [0.5, 0.4, 0.9, 0.3],
            [math.inf, math.inf, 0.2, 0.1],
            [0.3, 0.6, 0.2, 0.1],
        ],
        dtype=dtype,
    )
    p = torch.tensor([[0.5, 1e-30, 0.5, 1e-35]] * 2 + [[0.25] * 4], dtype=dtype)
    q = torch.tensor([[0.9, 0.1, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25] * 4], dtype=dtype)
    for limit in (3, 5, 8, 50, 1000):
        with pytest.warns(SinkhornWarning):
            result = sinkhorn(p, q, cost, epsilon=0.1, max_iterations=limit)
        found = (result.value, result.alpha, result.beta, result.error, result.plan(), result.transport_cost)
        assert all(bool(numbers.isfinite().all()) for numbers in found), limit
        assert result.converged[:2].tolist() == [False, False]


def test_one_class_a_side():
    one = torch.ones(2, 1, dtype=torch.float64)
    result = sinkhorn(one, one, torch.full((1, 1), 3.0, dtype=torch.float64), 0.1)
    assert_close(result.value, torch.full((2,), 2.9, dtype=torch.float64))  # <T, M> = 3, H(T) = 1
    assert_close(result.transport_cost, torch.full((2,), 3.0, dtype=torch.float64))


def test_rows_are_forgiven_a_rounding_error_in_their_sum():
    p, q, cost = problem(3, 5, 4)
    assert_close(sinkhorn(p * 1.0004, q, cost).value, sinkhorn(p, q, cost).value)


def test_a_problem_does_not_depend_on_its_neighbours():
    p, q, cost = problem(40, 12, 10, kind="shared")
    together = sinkhorn(p, q, cost, 0.02, tolerance=1e-8)
    for row in (0, 17, 39):
        alone = sinkhorn(p[[row]], q[[row]], cost, 0.02, tolerance=1e-8)
        assert_close(alone.value[0], together.value[row])


@given(
    m=st.integers(1, 60),
    n=st.integers(1, 60),
    log_epsilon=st.floats(-3, 1),
    log_scale=st.floats(-2, 4),
    spread=st.sampled_from([0.0, 1.0, 5.0, 30.0]),
    shape=st.sampled_from(["random", "zero diagonal", "constant", "two values"]),
    masses=st.sampled_from(["softmax", "zeros", "one-hot"]),
    single=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_answer_is_finite_and_says_how_good_it_is(
    m, n, log_epsilon, log_scale, spread, shape, masses, single, seed
):
    generator = torch.Generator().manual_seed(seed)
    dtype, epsilon = (torch.float32 if single else torch.float64), 10**log_epsilon
    cost = torch.rand(m, n, generator=generator, dtype=torch.float64)
    if shape == "zero diagonal":
        cost.fill_diagonal_(0)
    elif shape == "constant":
        cost.fill_(0.7)
    elif shape == "two values":
        cost.round_()
    cost = (cost * 10**log_scale).to(dtype)
    sides = []
    for size in (m, n):
        side = torch.softmax(spread * torch.randn(3, size, generator=generator, dtype=torch.float64), dim=1)
        if masses == "zeros":
            side[:, 1::2] = 0
        elif masses == "one-hot":
            side[0] = torch.eye(size, dtype=torch.float64)[0]
        sides.append((side / side.sum(1, keepdim=True)).to(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SinkhornWarning)
        result = sinkhorn(*sides, cost, epsilon)
    plan = result.plan()
    for tensor in (result.value, result.alpha, result.beta, result.error, plan, result.transport_cost):
        assert bool(tensor.isfinite().all())
    assert result.converged.tolist() == (result.error <= 1e-4).tolist()
    assert_close(plan.sum(dim=2), sides[0], atol=1e-5, rtol=0)
    # The error is measured before the potentials are rounded to the given precision.
    rounding = 4 * torch.finfo(dtype).eps * float(cost.max() - cost.min()) / epsilon + 1e-5
    measured = (plan.double().sum(dim=1) - sides[1].double()).abs().sum(dim=1)
    assert bool(((measured - result.error.double()).abs() <= 0.02 * result.error + 4 * rounding).all())
    if float(cost.max() - cost.min()) / epsilon < 100:
        assert bool(result.converged.all())


def test_it_agrees_with_dense_iterations_on_a_wide_cost():
    p, q, cost = problem(3, 6, 5)
    result = sinkhorn(p, q, cost, 0.02, tolerance=1e-9)
    _, beta = log_domain(p, q, cost, 0.02, 5000)
    centred = [side - (side * q).sum(1, keepdim=True) for side in (result.beta, beta)]
    assert_close(*centred, atol=1e-5, rtol=0)
