"""The fused Sinkhorn solver on a GPU beside its peers and the chip's limits, in one process.

Value and gradient to the logits for a batch of 256, every row at an L1 marginal error of 1e-4, epsilon 0.1. Times
are those of the device: a recorded CUDA graph, replayed many times, where nothing waits for the host.

    python benchmarks/sinkhorn_gpu.py            # needs a CUDA device, about a minute
    python benchmarks/sinkhorn_gpu.py --render   # the table in docs/performance.md from the kept numbers
    python benchmarks/sinkhorn_gpu.py --only 50x50 100x100 --peers none   # seconds; keeps nothing
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from common import keep, kept, show
from sinkhorn import Outcome, run_peer
from sinkhorn_peers import (
    TEMPERATURE,
    TOLERANCE,
    Problem,
    geomloss_batch,
    make_problem,
    ours,
    pot_batch,
)
from torch import Tensor

from preceptor.ot import fused, sinkhorn, sinkhorn_distance

BATCH, EPSILON = 256, 0.1
SHAPES = [(50, 50), (100, 100), (200, 100), (256, 256), (1000, 200), (1000, 1000)]
TARGETS = {(50, 50): 60e-6, (100, 100): 120e-6}  # seconds for value and potentials
PEERS: dict[str, tuple[Callable, list[Any]]] = {
    "POT batch": (pot_batch, [(1e-4, 1000), (1e-5, 1000), (1e-6, 5000)]),
    "geomloss": (geomloss_batch, [0.9, 0.99]),
}
PEAK_FLOPS, PEAK_BYTES = 67e12, 4.8e12  # an H200's float32 units, and its memory


def replayed(call: Callable[[], Any], times: int = 50) -> float:
    """Device seconds of one call, recorded as a CUDA graph; the least of three rounds of `times` replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return min(_seconds(graph.replay, times) for _ in range(3))


def _seconds(call: Callable[[], Any], times: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / times


def on_device(problem: Problem) -> Problem:
    tensors = {name: getattr(problem, name).cuda() for name in ("teacher", "student", "cost")}
    return replace(problem, **tensors)


def bare_products(kernel: Tensor, batch: int, iterations: int) -> Callable[[], None]:
    """The matrix products of so many iterations and nothing else."""
    v, u = kernel.new_ones(batch, kernel.shape[1]), kernel.new_ones(batch, kernel.shape[0])

    def call() -> None:
        for _ in range(iterations):
            torch.mm(v, kernel.T, out=u)
            torch.mm(u, kernel, out=v)

    return call


def measure(
    m: int, n: int, kind: str, peers: dict[str, tuple[Callable, list[Any]]], limit: float
) -> dict[str, Any]:
    problem = on_device(make_problem(BATCH, m, n, kind, EPSILON))
    p, q = problem.sides()
    options = (EPSILON, TOLERANCE, 1000)
    exact = sinkhorn(p.double(), q.double(), problem.cost.double(), EPSILON, 1e-6, 5000)
    value = fused.value_and_potentials(p, q, problem.cost, *options)[0]
    row: dict[str, Any] = {"shape": (BATCH, m, n), "kind": kind, "fused": not fused.is_large(p, q)}
    row["value_error"] = float((value - exact.value).abs().max())
    student = problem.student.clone().requires_grad_()

    def loss() -> None:
        q = torch.softmax(student / TEMPERATURE, 1)
        torch.autograd.grad(sinkhorn_distance(p, q, problem.cost, *options).sum(), student)

    # Where the host looks at the iterations no graph can record them: then what the stream takes, host and all.
    timed = replayed if row["fused"] else _eager
    row |= _fused(p, q, problem.cost) if row["fused"] else _large(p, q, problem.cost)
    row["solve_seconds"] = timed(lambda: fused.value_and_potentials(p, q, problem.cost, *options))
    row["seconds"] = timed(loss)
    row["floor_seconds"] = replayed(
        bare_products(torch.exp(-problem.cost / EPSILON), BATCH, row["iterations"]), 10
    )
    row["eager_seconds"] = _eager(lambda: ours(problem))
    row["peers"] = {
        name: asdict(_peer(solver, problem, tries, limit)) for name, (solver, tries) in peers.items()
    }
    return row


def _eager(call: Callable[[], Any]) -> float:
    return min(_seconds(call, 5) for _ in range(3))


def _fused(p: Tensor, q: Tensor, cost: Tensor) -> dict[str, Any]:
    """Iterations, operations and bytes of the launch that solves all problems."""
    from preceptor.ot.triton_sinkhorn import solve_fused

    found = solve_fused(p, q, cost, EPSILON, TOLERANCE, 1000)
    steps = found.iterations.double()
    return {
        "iterations": int(steps.max()), "mean_iterations": float(steps.mean()), "error": float(found.error.max()),
        "converged": bool((found.error <= TOLERANCE).all()),
        "flops": 4.0 * float(steps.sum()) * cost.numel(),  # two products of m x n an iteration and problem
        "bytes": 4.0 * (2 * p.numel() + 2 * q.numel() + cost.numel()),
    }  # fmt: skip


def _large(p: Tensor, q: Tensor, cost: Tensor) -> dict[str, Any]:
    """The same for the solver that multiplies all problems by one kernel."""
    from preceptor.ot.triton_large import solve_large

    found = solve_large(p, q, cost, EPSILON, TOLERANCE, 1000)
    return {
        "iterations": found.iterations, "error": float(found.error.max()), "converged": found.unsolved == 0,
        "flops": 4.0 * BATCH * cost.numel() * found.iterations,
        "bytes": 4.0 * (p.numel() + q.numel() + cost.numel()) * 2 * found.iterations,
    }  # fmt: skip


def _peer(solver: Callable, problem: Problem, tries: list[Any], limit: float) -> Outcome:
    def waited(problem: Problem, setting: Any) -> Callable[[], float]:
        with problem.cost.device:  # POT's batch solver makes some tensors where torch's default device is
            error = solver(problem, setting)
        torch.cuda.synchronize()
        return error

    try:
        waited(problem, tries[0])  # the first call chooses kernels
        return run_peer(waited, problem, tries, limit)
    except torch.cuda.OutOfMemoryError:
        return Outcome(None, None, "out of memory")


def table(data: dict[str, Any]) -> str:
    head = ("batch, classes", "cost", "iterations", "value and potentials", "with gradient to logits", "POT batch",
            "geomloss", "times faster", "of bare products", "of the float32 peak")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in data["rows"]:
        batch, m, n = row["shape"]
        sound = [
            p["seconds"] for p in row["peers"].values() if p["seconds"] and p["error"] <= 1.05 * TOLERANCE
        ]
        limit = data["limit"] if any(p["note"].startswith(">") for p in row["peers"].values()) else None
        best = min(sound) if sound else limit
        faster = "–" if best is None else f"{'' if sound else '> '}{best / row['seconds']:,.0f}"
        lines.append("| " + " | ".join([
            f"{batch}, {m} x {n}", row["kind"], str(row["iterations"]), _time(row["solve_seconds"]),
            _time(row["seconds"]), *(_told(row["peers"][name]) for name in ("POT batch", "geomloss")), faster,
            f"{row['solve_seconds'] / row['floor_seconds']:.2f}",
            f"{row['flops'] / row['solve_seconds'] / PEAK_FLOPS:.0%}",
        ]) + " |")  # fmt: skip
    verdicts = []
    for (m, n), wanted in TARGETS.items():
        came = {
            row["kind"]: row["solve_seconds"] for row in data["rows"] if tuple(row["shape"][1:]) == (m, n)
        }
        told = ", ".join(f"{_time(value)} {kind}" for kind, value in came.items())
        met = "met" if max(came.values()) < wanted else "met where classes are disjoint" if min(
            came.values()) < wanted else "missed"  # fmt: skip
        verdicts.append(f"- {m} x {n} under {_time(wanted)}: {met} ({told}).")
    largest = [row for row in data["rows"] if tuple(row["shape"][1:]) == (1000, 1000)]
    ratios = {row["kind"]: row["solve_seconds"] / row["floor_seconds"] for row in largest}
    told = ", ".join(f"{value:.2f} {kind}" for kind, value in ratios.items())
    met = "met" if max(ratios.values()) <= 2 else "missed"
    verdicts.append(f"- 1000 x 1000 within twice the bare products: {met} ({told}).")
    return "\n".join(lines) + "\n\n" + "\n".join(verdicts)


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f} µs" if seconds < 0.01 else f"{1000 * seconds:,.0f} ms"


def _told(peer: dict[str, Any]) -> str:
    if peer["seconds"] is None:
        return peer["note"]
    failed = "" if peer["error"] <= 1.05 * TOLERANCE else f" (error {peer['error']:.0e})"
    return _time(peer["seconds"]) + failed


def _brief(row: dict[str, Any]) -> str:
    batch, m, n = row["shape"]
    return (
        f"{batch}, {m}x{n} {row['kind']}: {row['iterations']} iterations, solve {_time(row['solve_seconds'])}, "
        f"with gradient {_time(row['seconds'])}, bare products {_time(row['floor_seconds'])}, "
        f"error {row['error']:.1e}, value off by {row['value_error']:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=4.0, help="seconds a peer may take for one try")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    parser.add_argument("--only", nargs="+", metavar="MxN", help="these shapes, and keep nothing")
    parser.add_argument("--peers", choices=["all", "none"], default="all", help="none: keep nothing")
    arguments = parser.parse_args()
    if not arguments.render:
        warnings.simplefilter("ignore")
        shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.only or []] or SHAPES
        peers = PEERS if arguments.peers == "all" else {}
        rows = []
        for m, n in shapes:
            for kind in ("disjoint", "shared"):
                rows.append(measure(m, n, kind, peers, arguments.limit))
                print(_brief(rows[-1]), flush=True)
        if arguments.only or not peers:
            return
        keep("sinkhorn_gpu", {"rows": rows, "limit": arguments.limit})
    found = table(kept("sinkhorn_gpu"))
    show("sinkhorn_gpu", found)
    print(found)


if __name__ == "__main__":
    main()
