"""The step time of each method over the plain student plus the teacher's forward pass, side by side in one process.

A step is both networks' passes, the loss and its gradient: WRN-16-1 learns from WRN-40-2, batch 256, 50 classes each.
Each step of a method is preceded by one of the plain student, so that a noisy machine is as noisy to one as to the
other; the ratio of the smallest times of such pairs counts.
Peak memory is that of a fresh process for each method.

    python benchmarks/distill.py [--quick] [--methods none sinkhorn …]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import write_section

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import METHODS, Context, Method, Step
from preceptor.models import build

CLASSES = tuple(f"class-{number}" for number in range(50))


def make_step(name: str, batch: int, device: str = "cpu") -> Callable[[], None]:
    """One step of a method as a function without arguments."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, 32, 32, generator=generator).to(device)
    labels = (torch.arange(batch) % len(CLASSES)).to(device)
    student = build("wrn-16-1", len(CLASSES), seed=0).to(device)
    teacher = build("wrn-40-2", len(CLASSES), seed=1).to(device).eval().requires_grad_(False)
    method = make_method(name, student, teacher, images[:4]).to(device)
    targets = torch.nn.functional.one_hot(labels, len(CLASSES)).float()
    weights, rows = torch.ones(batch, device=device), torch.arange(batch, device=device)
    parameters = [*student.parameters(), *method.parameters()]

    def step() -> None:
        view = method.expand(images)
        with torch.no_grad():
            taught: ModelOutput = teacher.outputs(view)
        for parameter in parameters:
            parameter.grad = None
        said = student.outputs(view)
        terms = method(Step(view, labels, targets, weights, rows, said, taught, 0.5))
        torch.stack(list(terms.values())).sum().backward()

    return step


def make_method(
    name: str, student: torch.nn.Module, teacher: torch.nn.Module, images: torch.Tensor
) -> Method:
    """A method for random networks: what it learns before training comes from random features."""
    count = 10 * len(CLASSES)
    random = torch.Generator().manual_seed(2)
    labels = torch.arange(count) % len(CLASSES)
    features = torch.randn(count, teacher.feature_size, generator=random).relu()
    logits = features @ teacher.classifier.weight.cpu().T
    with torch.no_grad():
        shapes = [network.eval().outputs(images) for network in (student, teacher)]
    student.train()
    context = Context(
        student_classes=CLASSES, student_shape=shapes[0], teacher_classes=CLASSES, teacher_shape=shapes[1],
        teacher_classifier=teacher.classifier.weight.cpu(), teacher_bias=teacher.classifier.bias.cpu(),
        teacher_centers=None, train_outputs=Outputs(features.numpy(), logits.numpy(), labels.numpy()),
        num_train=max(count, 256), seed=0, train_labels=labels,
    )  # fmt: skip
    return METHODS[name](context)


def peak_memory(name: str, batch: int) -> float:
    """MiB that a fresh process needed at most for two steps."""
    command = [sys.executable, __file__, "--memory-of", name, "--batch", str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="batch 64, two rounds")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        step = make_step(args.memory_of, args.batch)
        step(), step()
        # Not ru_maxrss, which a process inherits from the one that started it.
        status = Path("/proc/self/status").read_text()
        print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024)
        return
    batch, rounds = (64, 2) if args.quick else (args.batch, args.rounds)
    names = ["none", *(name for name in args.methods if name != "none")]
    steps = {name: make_step(name, batch) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    plain: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            for work, kept in ((steps["none"], plain[name]), (step, times[name])):
                started = time.perf_counter()
                work()
                if turn:  # the first round warms up
                    kept.append(time.perf_counter() - started)
    steps.clear()
    plain_memory = peak_memory("none", batch)
    rows = [
        {
            "method": name,
            "milliseconds": round(1000 * min(taken), 1),
            "over_plain": round(min(taken) / min(plain[name]) - 1, 4),
            "memory_over_plain": round(peak_memory(name, batch) / plain_memory - 1, 4)
            if name != "none"
            else 0.0,
        }
        for name, taken in times.items()
    ]
    table = ["| method | step | over the plain step | peak memory over it |", "|---|---|---|---|"]
    for row in rows:
        over, memory = f"{row['over_plain']:+.1%}", f"{row['memory_over_plain']:+.1%}"
        table.append(f"| `{row['method']}` | {row['milliseconds']:.0f} ms | {over} | {memory} |")
    print("\n".join(table))
    write_section(
        "distill", "\n".join(table), {"batch": batch, "rounds": rounds, "rows": rows}, quick=args.quick
    )


if __name__ == "__main__":
    main()
