"""The fused CUDA solver: its kernel in Triton's interpreter on any machine, and on a GPU where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from preceptor.ot import fused, sinkhorn, sinkhorn_distance
from tests.recorded import recorded

pytest.importorskip("triton")

CASES = {
    "plain": {},
    "wide": {"m": 33, "n": 20},
    "tall": {"m": 5, "n": 40},
    "whole blocks": {"m": 16, "n": 32},
    "several warps": {"m": 140, "n": 70},
    "streamed": {"m": 140, "n": 130, "epsilon": 0.3},
    "one class": {"m": 1, "n": 7},
    "one class each": {"m": 1, "n": 1},
    "sharp": {"epsilon": 0.01},
    "soft": {"epsilon": 10.0},
    "shared classes": {"m": 12, "n": 12, "shared": True},
    "shared and sharp": {"m": 12, "n": 12, "shared": True, "epsilon": 0.01},
    "huge costs": {"scale": 1e3, "epsilon": 10.0},
    "costs far from 0": {"offset": 100.0},
    "one-hot": {"one_hot": True},
    "no mass on some classes": {"zeros": True},
    "not normalised": {"mass": 3.0},
    "forbidden pairs": {"forbidden": True},
    "forbidden pairs, streamed": {"m": 140, "n": 130, "epsilon": 0.3, "forbidden": True},
    "too few iterations": {"epsilon": 0.01, "shared": True, "m": 12, "n": 12, "max_iterations": 9},
    "warm": {"epsilon": 0.03, "warm": True},
    "warm, streamed": {"m": 140, "n": 130, "epsilon": 0.3, "warm": True},
}
SPOILT = ["a row of p", "a row of q", "a row of p, streamed", "a row of q without mass", "a cost"]


def problem(
    m=10, n=14, epsilon=0.1, scale=1.0, offset=0.0, mass=1.0, shared=False, one_hot=False, zeros=False, forbidden=False,
    warm=False, max_iterations=3000,
):  # fmt: skip
    generator = torch.Generator().manual_seed(m * 100 + n)
    p, q = (torch.softmax(2 * torch.randn(3, size, generator=generator), dim=1) for size in (m, n))
    teacher, student = (torch.randn(size, 8, generator=generator) for size in (m, n))
    cost = scale * torch.cdist(
        *(torch.nn.functional.normalize(c) for c in (teacher, teacher if shared else student))
    )
    if one_hot:
        p, q = torch.eye(m)[:3], torch.eye(n)[4:7]
    if zeros:
        p[0, :4], q[1, 5:] = 0, 0
        p, q = (side / side.sum(1, keepdim=True) for side in (p, q))
    if forbidden:
        cost[0, 0] = cost[2, 3] = float("inf")
    beta0 = sinkhorn(p, q, cost, epsilon).beta if warm else None
    return {"p": mass * p, "q": q, "cost": cost + offset, "epsilon": epsilon, "tolerance": 1e-4,
            "max_iterations": max_iterations, "beta0": beta0}  # fmt: skip


def spoilt(name):
    given = problem(m=140, n=130) if "streamed" in name else problem()
    given["max_iterations"] = 8
    side, at = ("cost", (3, 2)) if name == "a cost" else (name[9], (1, 2))
    given[side][at] = float("nan")
    if "without mass" in name:
        given[side][1] = 0
    return given


def interpreted(problems, solver, folder):
    """What a solver's kernels answer in Triton's interpreter, beside what was given."""
    torch.save(list(problems.values()), folder / "problems.pt")
    script = str(Path(__file__).with_name("fused_cases.py"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, str(folder / "problems.pt"), solver],
        capture_output=True, text=True, check=False, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [{key: torch.tensor(value) for key, value in row.items()} for row in json.loads(done.stdout)]
    return {name: (problems[name], answer) for name, answer in zip(problems, found, strict=True)}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    problems = {name: problem(**options) for name, options in CASES.items()}
    problems |= {name: spoilt(name) for name in SPOILT}
    return interpreted(problems, "fused", tmp_path_factory.mktemp("fused"))


def plan(given, found):
    exponent = (
        found["alpha"].double()[:, :, None] + found["beta"].double()[:, None, :] - given["cost"].double()
    )
    return torch.exp(exponent / given["epsilon"])


def exact(given):
    p, q = (given[side].double() / given[side].double().sum(1, keepdim=True) for side in "pq")
    return sinkhorn(p, q, given["cost"].double(), given["epsilon"], tolerance=1e-9, max_iterations=30_000)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_has_the_marginals_that_the_kernel_reports(answers, name):
    given, found = answers[name]
    moved = plan(given, found)
    p = given["p"].double() / given["p"].double().sum(1, keepdim=True)
    slack = 2e-5 + 4e-7 * float(given["cost"][given["cost"].isfinite()].max()) / given["epsilon"]
    assert torch.isfinite(found["beta"]).all()
    assert torch.isfinite(found["alpha"]).all()
    torch.testing.assert_close(moved.sum(2), p, atol=slack, rtol=2e-4)
    measured = (moved.sum(1) - given["q"]).abs().sum(1).float()
    torch.testing.assert_close(measured, found["error"], atol=slack, rtol=1e-2)
    if name == "too few iterations":
        assert (found["error"] > given["tolerance"]).any(), "an unsolved problem says so"
        assert (found["iterations"] <= 12).all()
    else:
        assert (found["error"] <= given["tolerance"]).all()


@pytest.mark.parametrize("name", sorted(set(CASES) - {"too few iterations"}))
def test_the_value_is_that_of_float64(answers, name):
    given, found = answers[name]
    wanted = exact(given).value.float()
    torch.testing.assert_close(found["value"], wanted, atol=2e-4 * given["epsilon"] + 1e-6, rtol=2e-5)


@pytest.mark.parametrize(
    "name",
    ["plain", "wide", "tall", "several warps", "streamed", "shared classes", "forbidden pairs", "huge costs"],
)
def test_the_gradient_is_that_of_float64(answers, name):
    given, found = answers[name]

    def gradient(beta):
        return (beta - (beta * given["q"]).sum(1, keepdim=True)) * given["q"]

    wanted, got = gradient(exact(given).beta), gradient(found["beta"].double())
    assert (wanted - got).norm() <= 3e-3 * wanted.norm()


@pytest.mark.parametrize("name", ["warm", "warm, streamed"])
def test_a_warm_start_saves_iterations(answers, name):
    given, warm = answers[name]
    assert given["beta0"] is not None
    assert warm["iterations"].max() <= 2, "the first look finds it solved"


def test_anderson_steps_pay_on_hard_problems(answers):
    assert answers["shared classes"][1]["iterations"].max() <= 40, (
        "plain iterations need several hundred here"
    )
    assert answers["streamed"][1]["iterations"].max() <= 10


@pytest.mark.parametrize("name", SPOILT[:-1])
def test_a_row_with_nan_spoils_no_other(answers, name):
    _, found = answers[name]
    for key in ("value", "alpha", "beta", "error"):
        assert found[key][1].isnan().all(), key
        assert found[key][[0, 2]].isfinite().all(), key


def test_a_cost_with_nan_gives_nan(answers):
    _, found = answers["a cost"]
    assert found["value"].isnan().all()
    assert found["alpha"].isnan().all()
    assert found["beta"].isnan().all()


def test_an_offset_that_only_the_costs_precision_can_hold_costs_no_digits(tmp_path):
    near, far = problem(), problem()
    near["cost"], far["cost"] = near["cost"].double(), near["cost"].double() + 2.0**27
    found = interpreted({"near": near, "far": far}, "distance", tmp_path)
    near, far = (found[name][1] for name in ("near", "far"))
    torch.testing.assert_close(near["beta"], far["beta"], atol=1e-6, rtol=0)
    torch.testing.assert_close(near["value"] + 2.0**27, far["value"])
    torch.testing.assert_close(near["alpha"] + 2.0**27, far["alpha"])


def test_only_float32_on_cuda_is_taken():
    p = torch.full((2, 4), 0.25)
    assert not fused.takes(p, p)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_every_case_has_the_value_of_float64(name):
    from preceptor.ot.triton_sinkhorn import solve_fused

    given = problem(**CASES[name])
    onto = {key: x.cuda() if isinstance(x, torch.Tensor) else x for key, x in given.items()}
    found = solve_fused(**onto)
    if name == "too few iterations":
        assert (found.error > given["tolerance"]).any()
        return
    assert (found.error <= given["tolerance"]).all()
    wanted = exact(given).value.float()
    torch.testing.assert_close(found.value.cpu(), wanted, atol=2e-4 * given["epsilon"] + 1e-6, rtol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SPOILT[:-1])
def test_on_a_gpu_a_row_with_nan_spoils_no_other(name):
    given = spoilt(name)
    value = sinkhorn_distance(given["p"].cuda(), given["q"].cuda(), given["cost"].cuda())
    assert value.isnan().tolist() == [False, True, False]


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n"), [(50, 50), (100, 100), (200, 100), (7, 256), (256, 7), (256, 256)])
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_on_a_gpu_it_agrees_with_float64(m, n, epsilon):
    given = problem(m=m, n=n, epsilon=epsilon)
    p, q, cost = (given[key].cuda() for key in ("p", "q", "cost"))
    assert fused.takes(p, q)
    logits = q.log().requires_grad_()
    sinkhorn_distance(p, logits.softmax(1), cost, epsilon).sum().backward()
    reference = given["q"].double().log().requires_grad_()
    distance = sinkhorn_distance(
        given["p"].double(), reference.softmax(1), given["cost"].double(), epsilon, 1e-9
    )
    distance.sum().backward()
    torch.testing.assert_close(logits.grad.cpu().double(), reference.grad, atol=1e-4, rtol=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n"), [(10, 14), (300, 20)])
def test_on_a_gpu_an_offset_that_only_the_costs_precision_can_hold_costs_no_digits(m, n):
    given = problem(m=m, n=n)
    p, q, cost = given["p"].cuda(), given["q"].cuda(), given["cost"].cuda().double()
    assert fused.takes(p, q)
    q.requires_grad_()
    near, far = (
        torch.autograd.grad(sinkhorn_distance(p, q, costs).sum(), q)[0] for costs in (cost, cost + 2.0**27)
    )
    torch.testing.assert_close(near, far, atol=1e-6, rtol=0)


@pytest.mark.gpu
def test_on_a_gpu_a_graph_can_record_it():
    given = problem(m=50, n=50)
    p, cost = given["p"].cuda(), given["cost"].cuda()
    logits = torch.randn(3, 50, device="cuda", requires_grad=True)

    def step():
        logits.grad = None
        loss = sinkhorn_distance(p, logits.softmax(1), cost).sum()
        loss.backward()
        return loss.detach()

    graph, result = recorded(step)
    with torch.no_grad():
        logits.mul_(2)
    graph.replay()
    torch.testing.assert_close(result, sinkhorn_distance(p, logits.softmax(1), cost).sum())


@pytest.mark.gpu
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_on_a_gpu_sinkhorn_finishes_what_the_launch_leaves(epsilon):
    given = problem(m=50, n=50, shared=True, epsilon=epsilon)
    result = sinkhorn(given["p"].cuda(), given["q"].cuda(), given["cost"].cuda(), epsilon)
    assert result.converged.all()
    torch.testing.assert_close(result.value.cpu().double(), exact(given).value, atol=1e-3, rtol=1e-3)
