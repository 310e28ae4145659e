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

pytest.importorskip("triton")

CASES = {
    "plain": {},
    "wide": {"m": 33, "n": 20},
    "tall": {"m": 5, "n": 40},
    "one class": {"m": 1, "n": 7},
    "sharp": {"epsilon": 0.01},
    "soft": {"epsilon": 10.0},
    "shared classes": {"m": 12, "n": 12, "shared": True},
    "huge costs": {"scale": 1e3, "epsilon": 10.0},
    "one-hot": {"one_hot": True},
    "forbidden pairs": {"forbidden": True},
    "too few iterations": {"epsilon": 0.01, "shared": True, "m": 12, "n": 12, "max_iterations": 9},
    "warm": {"epsilon": 0.03, "warm": True},
}


def problem(
    m=10,
    n=14,
    epsilon=0.1,
    scale=1.0,
    shared=False,
    one_hot=False,
    forbidden=False,
    warm=False,
    max_iterations=3000,
):
    generator = torch.Generator().manual_seed(m * 100 + n)
    p, q = (torch.softmax(2 * torch.randn(3, size, generator=generator), dim=1) for size in (m, n))
    teacher, student = (torch.randn(size, 8, generator=generator) for size in (m, n))
    cost = scale * torch.cdist(
        *(torch.nn.functional.normalize(c) for c in (teacher, teacher if shared else student))
    )
    if one_hot:
        p = torch.eye(m)[:3].clamp_min(1e-30)
    if forbidden:
        cost[0, 0] = cost[2, 3] = float("inf")
    cost = cost - cost.amin()
    beta0 = sinkhorn(p, q, cost, epsilon).beta if warm else None
    return {"p": p, "q": q, "cost": cost, "epsilon": epsilon, "tolerance": 1e-4, "max_iterations": max_iterations,
            "beta0": beta0}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    problems = {name: problem(**options) for name, options in CASES.items()}
    file = tmp_path_factory.mktemp("fused") / "problems.pt"
    torch.save(list(problems.values()), file)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("fused_cases.py")), str(file)],
        capture_output=True, text=True, check=False, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [{key: torch.tensor(value) for key, value in row.items()} for row in json.loads(done.stdout)]
    return {name: (problems[name], answer) for name, answer in zip(CASES, found, strict=True)}


def plan(given, found):
    exponent = (found["alpha"][:, :, None] + found["beta"][:, None, :] - given["cost"]) / given["epsilon"]
    return exponent.double().exp()


@pytest.mark.parametrize("name", CASES)
def test_the_plan_has_the_marginals_that_the_kernel_reports(answers, name):
    given, found = answers[name]
    moved = plan(given, found)
    assert torch.isfinite(found["beta"]).all()
    torch.testing.assert_close(moved.sum(2), given["p"].double(), atol=2e-5, rtol=1e-4)
    measured = (moved.sum(1) - given["q"]).abs().sum(1).float()
    torch.testing.assert_close(measured, found["error"], atol=2e-5, rtol=1e-2)
    if name == "too few iterations":
        assert (found["error"] > given["tolerance"]).any(), "an unsolved problem says so"
    else:
        assert (found["error"] <= given["tolerance"]).all()


@pytest.mark.parametrize("name", ["plain", "wide", "tall", "shared classes", "forbidden pairs", "huge costs"])
def test_the_gradient_is_that_of_the_torch_solver(answers, name):
    given, found = answers[name]
    exact = sinkhorn(
        given["p"].double(), given["q"].double(), given["cost"].double(), given["epsilon"], tolerance=1e-9
    )

    def gradient(beta):
        return (beta - (beta * given["q"]).sum(1, keepdim=True)) * given["q"]

    wanted, got = gradient(exact.beta), gradient(found["beta"].double())
    assert (wanted - got).norm() <= 3e-3 * wanted.norm()


def test_a_warm_start_saves_iterations(answers):
    given, warm = answers["warm"]
    assert given["beta0"] is not None
    assert warm["iterations"].max() == 1, "the first look finds it solved"


def test_over_relaxation_pays_on_hard_problems(answers):
    _, found = answers["shared classes"]
    assert found["iterations"].max() <= 100, "plain iterations need several hundred here"


def test_only_float32_on_cuda_of_modest_size_is_taken():
    p = torch.full((2, 4), 0.25)
    assert not fused.takes(p, p)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n"), [(50, 50), (100, 100), (200, 100), (7, 256)])
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_on_a_gpu_it_agrees_with_float64(m, n, epsilon):
    given = problem(m=m, n=n, epsilon=epsilon)
    p, q, cost = (given[key].cuda() for key in ("p", "q", "cost"))
    assert fused.takes(p, q)
    logits = q.log().requires_grad_()
    sinkhorn_distance(p, logits.softmax(1), cost, epsilon).sum().backward()
    exact = given["q"].double().log().requires_grad_()
    distance = sinkhorn_distance(given["p"].double(), exact.softmax(1), given["cost"].double(), epsilon, 1e-9)
    distance.sum().backward()
    torch.testing.assert_close(logits.grad.cpu().double(), exact.grad, atol=1e-4, rtol=1e-2)


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

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        logits.mul_(2)
    graph.replay()
    torch.testing.assert_close(recorded, sinkhorn_distance(p, logits.softmax(1), cost).sum())


@pytest.mark.gpu
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_on_a_gpu_sinkhorn_finishes_what_the_launch_leaves(epsilon):
    given = problem(m=50, n=50, shared=True, epsilon=epsilon)
    result = sinkhorn(given["p"].cuda(), given["q"].cuda(), given["cost"].cuda(), epsilon)
    exact = sinkhorn(
        given["p"].double(), given["q"].double(), given["cost"].double(), epsilon, tolerance=1e-9
    )
    assert result.converged.all()
    torch.testing.assert_close(result.value.cpu().double(), exact.value, atol=1e-3, rtol=1e-3)
