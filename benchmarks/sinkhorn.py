"""Value and gradient to the logits of the Sinkhorn loss, side by side with its peers in one process.

Every solver has to bring every problem of the batch to the same measured L1 marginal error. Prints a table, writes
the numbers with their evidence to results/benchmarks/sinkhorn.json and the table into docs/performance.md.

    python benchmarks/sinkhorn.py            # all shapes, some hours on two cores
    python benchmarks/sinkhorn.py --quick    # the two small shapes, a few minutes; keeps nothing
    python benchmarks/sinkhorn.py --shape 256,100,100 --epsilon 0.01 --limit 60    # some rows; the others stay
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from common import PAGE, RESULTS, evidence, kept, put, write
from sinkhorn_peers import (
    TEMPERATURE,
    TOLERANCE,
    Problem,
    automatic_differentiation,
    bare_products,
    geomloss_batch,
    make_problem,
    ours,
    plain_iterations,
    pot_batch,
    pot_loop,
)

from preceptor.ot import sinkhorn

SHAPES = [(256, 100, 100), (128, 200, 100), (256, 1000, 200), (256, 1000, 1000)]
KINDS, EPSILONS = ("disjoint", "shared"), (0.1, 0.01)
MEMORY_LIMIT = 6e9  # bytes a peer may ask for


@dataclass
class Outcome:
    """One solver on one problem: its best time, the worst row's error, and what there is to say."""

    seconds: float | None
    error: float | None
    note: str = ""


class _TimeIsUp(Exception):
    pass


def timed(
    solver: Callable[[], Callable[[], float]], limit: float
) -> tuple[float, Callable[[], float] | None]:
    """Seconds and the error function; None for that where the limit was reached."""

    def stop(*_: object) -> None:
        raise _TimeIsUp

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    start = time.perf_counter()
    try:
        error = solver()
        return time.perf_counter() - start, error
    except _TimeIsUp:
        return limit, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_grad_enabled(True)  # geomloss switches it off and does not come to switch it on


def run_peer(
    solver: Callable[..., Callable[[], float]], problem: Problem, settings: list, limit: float
) -> Outcome:
    """The first setting, from loose to tight, that reaches the tolerance; else the tightest that ended."""
    best = Outcome(None, None, f"> {limit:.0f} s")
    for setting in settings:
        seconds, error = timed(lambda setting=setting: solver(problem, setting), limit)
        if error is None:  # a tighter one would take longer still
            return best
        best = Outcome(seconds, error(), f"setting {setting}")
        if reached(asdict(best)):
            again = [timed(lambda setting=setting: solver(problem, setting), limit)[0] for _ in range(2)]
            best.seconds = min(seconds, *(again if seconds < limit / 4 else [seconds]))
            return best
    return best


def reached(outcome: dict) -> bool:
    """Whether a solver ended, and every row of its answer is within the tolerance."""
    return outcome["seconds"] is not None and outcome["error"] <= 1.05 * TOLERANCE


def peak_memory(call: Callable[[], object]) -> int:
    """The most bytes alive at once that `call` allocated."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def measure(shape: tuple[int, int, int], kind: str, epsilon: float, limit: float, repeats: int) -> dict:
    problem = make_problem(*shape, kind, epsilon)
    batch, m, n = shape
    p, q = problem.sides()
    result = sinkhorn(p, q, problem.cost, epsilon, TOLERANCE)
    plain = plain_iterations(problem, 2000) if epsilon >= 0.05 else 2000
    moved = problem.student + 0.05 * problem.student.std() * torch.randn(
        problem.student.shape, generator=torch.Generator().manual_seed(1)
    )
    moved = torch.softmax(moved / TEMPERATURE, 1)
    mine = {
        "ours": lambda: ours(problem),
        "floor": lambda: bare_products(problem, result.iterations),
        "floor_plain": lambda: bare_products(problem, plain),
        "cold": lambda: sinkhorn(p, moved, problem.cost, epsilon, TOLERANCE),
        "warm": lambda: sinkhorn(p, moved, problem.cost, epsilon, TOLERANCE, beta0=result.beta),
    }
    best = dict.fromkeys(mine, math.inf)
    for _ in range(repeats):  # interleaved, so that a busy moment hits all of them
        for name, call in mine.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    inputs = 4 * (p.numel() + q.numel() + problem.cost.numel())
    extra = peak_memory(lambda: sinkhorn(p, q, problem.cost, epsilon, TOLERANCE))
    plans = 4.0 * batch * m * n
    # Thresholds and the most iterations; 1,000 is POT's own default.
    settings = (
        [(1e-5, 1000), (3e-6, 1000), (1e-6, 1000)] if epsilon >= 0.05 else [(1e-5, 1000), (1e-6, 20_000)]
    )
    peers = {"POT loop": run_peer(pot_loop, problem, settings, limit)}
    skipped = "needs over 6 GB"
    if 6 * plans < MEMORY_LIMIT:
        settings = [(1e-4, 1000), *settings] if epsilon >= 0.05 else [(1e-5, 1000), (1e-5, 20_000)]
        peers["POT batch"] = run_peer(pot_batch, problem, settings, limit)
        peers["geomloss"] = run_peer(geomloss_batch, problem, [0.9, 0.99, 0.999], limit)
    else:
        peers["POT batch"] = peers["geomloss"] = Outcome(None, None, skipped)
    if 5 * plans * plain < MEMORY_LIMIT:
        peers["autodiff"] = run_peer(automatic_differentiation, problem, [plain], limit)
    else:
        peers["autodiff"] = Outcome(None, None, f"needs over {5 * plans * plain / 1e9:.0f} GB")
    return {
        "shape": shape, "kind": kind, "epsilon": epsilon,
        "ours": asdict(Outcome(best["ours"], float(result.error.max()), f"{result.iterations} iterations")),
        "converged": bool(result.converged.all()), "iterations": result.iterations, "plain_iterations": plain,
        "floor_seconds": best["floor"], "floor_plain_seconds": best["floor_plain"],
        "cold_seconds": best["cold"], "warm_seconds": best["warm"],
        "extra_memory": extra, "input_memory": inputs, "peers": {name: asdict(peer) for name, peer in peers.items()},
    }  # fmt: skip


def best_peer(row: dict) -> tuple[float, bool]:
    """Seconds of the fastest peer that reached the tolerance; else what the quickest one took in vain."""
    finished = [peer["seconds"] for peer in row["peers"].values() if reached(peer)]
    if finished:
        return min(finished), True
    vain = [peer["seconds"] for peer in row["peers"].values() if peer["seconds"] is not None]
    return (min(vain) if vain else row["limit"]), False


def describe(peer: dict) -> str:
    if peer["seconds"] is None:
        return peer["note"]
    failed = "" if reached(peer) else f", not converged (error {peer['error']:.0e})"
    return f"{1000 * peer['seconds']:,.0f} ms{failed}"


def table(rows: list[dict]) -> str:
    names = ["POT loop", "POT batch", "geomloss", "autodiff"]
    lines = [
        f"| batch, classes | cost | epsilon | ours | {' | '.join(names)} | times faster "
        "| of bare products | warm / cold | memory / inputs |",
        "|" + "---|" * (8 + len(names)),
    ]
    for row in rows:
        batch, m, n = row["shape"]
        peer, finished = best_peer(row)
        faster = f"{'' if finished else '> '}{peer / row['ours']['seconds']:,.0f}"
        mine = f"{1000 * row['ours']['seconds']:,.1f} ms, {row['iterations']} it."
        mine += "" if row["converged"] else f" (error {row['ours']['error']:.0e})"
        cells = [
            f"{batch}, {m} x {n}", row["kind"], f"{row['epsilon']:g}", mine,
            *(describe(row["peers"][name]) for name in names), faster,
            f"{row['ours']['seconds'] / row['floor_seconds']:.1f}", f"{row['warm_seconds'] / row['cold_seconds']:.2f}",
            f"{row['extra_memory'] / row['input_memory']:.1f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def merged(rows: list[dict], target: Path) -> list[dict]:
    """The rows just measured, and those of earlier runs for what this one left out, in one order."""

    def place(row: dict) -> tuple:
        return SHAPES.index(tuple(row["shape"])), KINDS.index(row["kind"]), -row["epsilon"]

    earlier = json.loads(target.read_text())["rows"] if target.exists() else []
    return list({place(row): row for row in sorted([*earlier, *rows], key=place)}.values())


def options() -> argparse.Namespace:
    def shape(text: str) -> tuple[int, ...]:
        return tuple(int(size) for size in text.split(","))

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="the two small shapes, 20 seconds a peer; keeps nothing"
    )
    parser.add_argument("--shape", type=shape, action="append", choices=SHAPES, help="B,m,n; may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--epsilon", type=float, action="append", choices=EPSILONS, help="may be repeated")
    parser.add_argument(
        "--limit", type=float, help="seconds a peer may take for one try (default 300, quick 20)"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    arguments = parser.parse_args()
    arguments.limit = arguments.limit or (20.0 if arguments.quick else 300.0)
    arguments.shape = arguments.shape or SHAPES[: 2 if arguments.quick else None]
    return arguments


def main() -> None:
    arguments = options()
    if arguments.render:
        render(kept("sinkhorn")["rows"])
        return
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    rows, target = [], RESULTS / "sinkhorn.json"
    cases = itertools.product(arguments.shape, arguments.kind or KINDS, arguments.epsilon or EPSILONS)
    for shape, kind, epsilon in cases:
        row = measure(shape, kind, epsilon, arguments.limit, arguments.repeats)
        facts = {"tolerance": TOLERANCE, "temperature": TEMPERATURE, "seed": 0, "repeats": arguments.repeats}
        rows.append({**row, "limit": arguments.limit, "evidence": {**evidence(), **facts}})
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if arguments.quick:
        print(table(rows))
        return
    rows = merged(rows, target)
    write("sinkhorn", {"rows": rows})
    render(rows)
    print(table(rows))


def render(rows: list[dict[str, Any]]) -> None:
    """The table in docs/performance.md."""
    facts = [row["evidence"] for row in rows]
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(fact["command"] for fact in facts))
    load = f"{min(fact['load'][0] for fact in facts):.1f} to {max(fact['load'][0] for fact in facts):.1f}"
    machine = f"{facts[-1]['threads']} threads, torch {facts[-1]['versions']['torch']}, load {load}"
    put("sinkhorn", f"\n{table(rows)}\n\nMade by {commands}: {machine}.\n", PAGE)


if __name__ == "__main__":
    main()
