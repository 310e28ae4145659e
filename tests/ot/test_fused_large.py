"""The CUDA solver for many classes: its kernels in Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import pytest
import torch

from preceptor.ot import SinkhornWarning, fused, recording, sinkhorn, sinkhorn_distance

from .test_fused import exact, interpreted, plan, problem, spoilt

pytest.importorskip("triton")
from preceptor.ot.triton_large import solve_large

CASES = {
    "plain": {},
    "wide": {"m": 33, "n": 20},
    "tall": {"m": 5, "n": 40},
    "one class": {"m": 1, "n": 7},
    "soft": {"epsilon": 10.0},
    "shared classes": {"m": 12, "n": 12, "shared": True},
    "nearly too wide": {"epsilon": 0.05},
    "costs far from 0": {"offset": 100.0},
    "one-hot": {"one_hot": True},
    "no mass on some classes": {"zeros": True},
    "not normalised": {"mass": 3.0},
    "forbidden pairs": {"forbidden": True},
    "too few iterations": {"shared": True, "m": 12, "n": 12, "max_iterations": 5},
    "warm": {"warm": True},
}
SPOILT = ["a row of p", "a row of q", "a row of q without mass"]
ODD = {"too wide": problem(epsilon=0.01)} | {name: spoilt(name) for name in SPOILT}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    problems = {name: problem(**options) for name, options in CASES.items()} | ODD
    return interpreted(problems, "large", tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize("name", CASES)
def test_the_plan_has_the_marginals_that_are_reported(answers, name):
    given, found = answers[name]
    moved = plan(given, found)
    p = given["p"].double() / given["p"].double().sum(1, keepdim=True)
    slack = 2e-5 + 4e-7 * float(given["cost"][given["cost"].isfinite()].max()) / given["epsilon"]
    torch.testing.assert_close(moved.sum(2), p, atol=slack, rtol=2e-4)
    measured = (moved.sum(1) - given["q"]).abs().sum(1).float()
    torch.testing.assert_close(measured, found["error"], atol=slack, rtol=1e-2)
    assert found["unsolved"] == (found["error"] > given["tolerance"]).sum()
    assert not found["too_wide"]
    assert (found["unsolved"] > 0) == (name == "too few iterations")


@pytest.mark.parametrize("name", sorted(set(CASES) - {"too few iterations"}))
def test_the_value_is_that_of_float64(answers, name):
    given, found = answers[name]
    wanted = exact(given).value.float()
    torch.testing.assert_close(found["value"], wanted, atol=2e-4 * given["epsilon"] + 1e-6, rtol=2e-5)


def test_anderson_steps_pay_on_hard_problems(answers):
    assert answers["shared classes"][1]["iterations"] <= 24, "plain iterations need several hundred here"


def test_a_warm_start_saves_iterations(answers):
    assert answers["warm"][1]["iterations"] == 4, "the first look finds it solved"


def test_costs_out_of_range_are_told(answers):
    _, found = answers["too wide"]
    assert found["too_wide"]
    assert found["iterations"] == 8, "one look"


def test_a_graph_of_the_callers_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    p, q = (torch.full((2, classes), 1 / classes) for classes in (300, 5))
    with pytest.raises(RuntimeError, match="more than 256 classes a side the Sinkhorn solver looks"):
        fused.value_and_potentials(p, q, torch.rand(300, 5), 0.1, 1e-4, 100)


@pytest.mark.parametrize("name", SPOILT)
def test_a_row_with_nan_spoils_no_other(answers, name):
    _, found = answers[name]
    assert found["value"].isnan().tolist() == [False, True, False]
    assert found["error"].isnan().tolist() == [False, True, False]
    assert found["beta"][[0, 2]].isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n"), [(300, 300), (257, 40), (40, 257), (1000, 1000)])
@pytest.mark.parametrize("shared", [False, True])
def test_on_a_gpu_it_agrees_with_float64(m, n, shared):
    given = problem(m=max(m, n) if shared else m, n=max(m, n) if shared else n, shared=shared)
    p, q, cost = (given[key].cuda() for key in ("p", "q", "cost"))
    assert fused.takes(p, q)
    assert fused.is_large(p, q)
    logits = q.log().requires_grad_()
    torch.set_float32_matmul_precision("high")
    value = sinkhorn_distance(p, logits.softmax(1), cost)
    torch.set_float32_matmul_precision("highest")
    value.sum().backward()
    wanted = exact(given)
    torch.testing.assert_close(value.detach().cpu(), wanted.value.float(), atol=2e-5, rtol=2e-5)
    spread = wanted.beta - (wanted.beta * given["q"]).sum(1, keepdim=True)
    torch.testing.assert_close(logits.grad.cpu().double(), spread * given["q"], atol=1e-4, rtol=1e-2)
    assert sinkhorn(p, q, cost).converged.all()


@pytest.mark.gpu
def test_on_a_gpu_what_is_left_goes_to_the_torch_solver():
    given = problem(m=300, n=300, shared=True)
    p, q, cost = (given[key].cuda() for key in ("p", "q", "cost"))
    with pytest.warns(SinkhornWarning):
        sinkhorn_distance(p, q, cost, max_iterations=2)
    sharp = sinkhorn_distance(p, q, cost, epsilon=0.01, max_iterations=5000)
    torch.testing.assert_close(
        sharp.cpu(), exact({**given, "epsilon": 0.01}).value.float(), atol=1e-4, rtol=1e-4
    )


@pytest.mark.gpu
def test_on_a_gpu_nan_gives_nan():
    given = problem(m=300, n=40)
    given["p"][1, 2] = float("nan")
    value = sinkhorn_distance(given["p"].cuda(), given["q"].cuda(), given["cost"].cuda())
    assert value.isnan().tolist() == [False, True, False]


@pytest.mark.gpu
def test_on_a_gpu_a_shape_that_comes_again_is_replayed_and_leaves_what_was_found_alone():
    recording.clear()
    first, second = problem(m=300, n=270), problem(m=300, n=270, shared=False, offset=0.5)
    second["p"] = second["p"].flip(1)
    found = []
    for given in (first, second, first, second):
        sides = (given[key].cuda() for key in ("p", "q", "cost"))
        found.append(solve_large(*sides, epsilon=0.1, tolerance=1e-4, max_iterations=1000))
    assert sum(kept is not None for kept in recording._recordings.values()) == 1
    for given, answer in zip((first, second, first, second), found, strict=True):
        assert answer.unsolved == 0
        torch.testing.assert_close(answer.value.cpu(), exact(given).value.float(), atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(found[0].beta, found[2].beta, atol=1e-5, rtol=1e-4)
    two = (first["p"][:2].cuda(), first["q"][:2].cuda(), first["cost"].cuda(), 0.1, 1e-4, 1000)
    with torch.inference_mode():
        for _ in range(2):  # the second is recorded
            solve_large(*two)
    torch.testing.assert_close(solve_large(*two).value, found[0].value[:2], atol=2e-5, rtol=2e-5)
    many = [problem(m=300, n=n) for n in range(260, 260 + 2 * recording.KEPT)]
    for given in many:
        solve_large(*(given[key].cuda() for key in ("p", "q", "cost")), 0.1, 1e-4, 1000)
    assert len(recording._recordings) == recording.KEPT
