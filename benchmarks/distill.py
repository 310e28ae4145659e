"""What each method adds to a training step: WRN-16-1 learns from WRN-40-2, batch 256, 50 classes each.

A step is both networks' passes, the loss and its gradient. Steps of the plain student and of the method alternate in
one process on one thread (plain, method, plain, …), each of the method's is divided by the mean of the two plain ones
around it, and the median of these ratios counts, with a bootstrap interval of 95 %. The clock is the processor time of
the process, which other programs disturb least; the wall clock's ratio stands beside it. The row `none` is the plain
step against itself: its interval says what the machine can tell apart.

The transport term is timed by itself too (value and gradient of 256 problems of 50 x 50, on the logits of these
networks), as a share of the plain step: there the noise of the step is that of a share of a few percent.

Peak memory is the most that a step's tensors hold at once, weights and data left out.

    python benchmarks/distill.py [--quick] [--methods sinkhorn rkd …] [--rounds 30]
    python benchmarks/distill.py --render    # the table from the kept numbers

Nothing is published from a machine on which the plain step differs from itself, or on which the interval of the
transport term is wider than the 3 % that it is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from common import kept, show, write_section
from pairs import median_interval, paired, timed
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import METHODS, Context, Method, Step
from preceptor.models import Network, build

CLASSES = tuple(f"class-{number}" for number in range(50))
TIME_LIMIT, MEMORY_LIMIT = 0.03, 0.02  # what the transport term may add to the plain step
LOGIT_SPREAD = 4.0  # deviation of the logits, so that softened predictions are neither flat nor one-hot
TERM_REPEATS = 10  # of the term between two plain steps, so that the clock's grain does not count


@dataclass(frozen=True)
class Scene:
    """Two networks, a method between them, and a batch."""

    student: Network
    teacher: Network
    method: Method
    images: Tensor
    labels: Tensor

    def step_of(self, view: Tensor, student: ModelOutput, teacher: ModelOutput) -> Step:
        """What the method sees."""
        count, device = len(self.labels), self.labels.device
        targets = torch.nn.functional.one_hot(self.labels, len(CLASSES)).float()
        weights, rows = torch.ones(count, device=device), torch.arange(count, device=device)
        return Step(view, self.labels, targets, weights, rows, student, teacher, 0.5)


def make_scene(name: str, batch: int, device: str = "cpu") -> Scene:
    """Networks with random weights whose logits are spread as those of trained ones."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, 32, 32, generator=generator).to(device)
    student = build("wrn-16-1", len(CLASSES), seed=0).to(device)
    teacher = build("wrn-40-2", len(CLASSES), seed=1).to(device).eval().requires_grad_(False)
    with torch.no_grad():
        for network in (student, teacher):
            spread = network(images[:8]).sub(network.classifier.bias).std()
            network.classifier.weight.mul_(LOGIT_SPREAD / spread)
    method = make_method(name, student, teacher, images[:4]).to(device)
    return Scene(student, teacher, method, images, (torch.arange(batch) % len(CLASSES)).to(device))


def make_step(name: str, batch: int, device: str = "cpu") -> Callable[[], None]:
    """One step of a method as a function without arguments."""
    scene = make_scene(name, batch, device)
    parameters = [*scene.student.parameters(), *scene.method.parameters()]

    def step() -> None:
        view = scene.method.expand(scene.images)
        with torch.no_grad():
            taught: ModelOutput = scene.teacher.outputs(view)
        for parameter in parameters:
            parameter.grad = None
        terms = scene.method(scene.step_of(view, scene.student.outputs(view), taught))
        torch.stack(list(terms.values())).sum().backward()

    return step


def make_term(batch: int) -> Callable[[], None]:
    """The transport term and its gradient to the student's logits, without the networks."""
    scene = make_scene("sinkhorn", batch)
    with torch.no_grad():
        own, taught = scene.student.outputs(scene.images), scene.teacher.outputs(scene.images)
    logits = own.logits.clone().requires_grad_()
    said, taught = replace(own, maps=(), logits=logits), replace(taught, maps=())

    def term() -> None:
        logits.grad = None
        scene.method.terms(scene.step_of(scene.images, said, taught))["sinkhorn"].backward()

    return term


def make_method(name: str, student: Network, teacher: Network, images: Tensor) -> Method:
    """A method told of training features that lie around their class's row, as a trained teacher's do.

    So the costs between classes of one name are small, which is the hard case for the transport solver.
    """
    count = 10 * len(CLASSES)
    random = torch.Generator().manual_seed(2)
    labels = torch.arange(count) % len(CLASSES)
    rows = torch.nn.functional.normalize(teacher.classifier.weight.detach().cpu(), dim=1)
    features = (8 * rows[labels] + torch.randn(count, teacher.feature_size, generator=random)).relu()
    logits = features @ teacher.classifier.weight.cpu().T
    with torch.no_grad():
        shapes = [network.eval().outputs(images) for network in (student, teacher)]
    student.train()
    context = Context(
        student_classes=CLASSES, student_shape=shapes[0], teacher_classes=CLASSES, teacher_shape=shapes[1],
        teacher_classifier=teacher.classifier.weight.cpu(), teacher_centers=None,
        train_outputs=Outputs(features.numpy(), logits.numpy(), labels.numpy()),
        num_train=max(count, 256), seed=0,
    )  # fmt: skip
    return METHODS[name](context)


def compared(ratios: np.ndarray, base: float) -> dict[str, Any]:
    """Medians over `base` by both clocks, the first with its interval."""
    middle, low, high = median_interval(ratios[:, 0])
    return {
        "over_plain": round(middle - base, 5),
        "interval": [round(low - base, 5), round(high - base, 5)],
        "wall_over_plain": round(float(np.median(ratios[:, 1])) - base, 5),
    }


def peak_memory(step: Callable[[], None]) -> float:
    """MiB of tensors that a step holds at most over what lies there between steps.

    Counted at torch's allocator: what a process occupies differs by 6 % from one start to the next.
    """
    for _ in range(2):  # the first profile does not know the size of the gradients that it sees freed
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return float(np.cumsum([event.nbytes() for event in events]).max()) / 2**20


def measure(names: list[str], batch: int, rounds: int) -> dict[str, Any]:
    """All rows, the transport term by itself, and the time of the plain step."""
    plain = make_step("none", batch)
    alone = {"problems": [batch, len(CLASSES), len(CLASSES)],
             **compared(paired(plain, make_term(batch), rounds, TERM_REPEATS), 0.0)}  # fmt: skip
    least = peak_memory(plain)
    rows = []
    for name in names:
        step = make_step(name, batch)
        many = rounds if name in ("none", "sinkhorn") else -(-rounds // 3)
        ratios, memory = paired(plain, step, many), peak_memory(step) / least - 1
        rows.append({"method": name, **compared(ratios, 1.0), "memory_over_plain": round(memory, 4)})
        print(line(rows[-1]), flush=True)
    seconds = float(np.median([timed(plain)[0] for _ in range(5)]))
    return {"batch": batch, "rounds": rounds, "plain_milliseconds": round(1000 * seconds, 1),
            "plain_memory_mib": round(least, 1), "transport_term": alone, "rows": rows}  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """A row of the table; a difference that the machine could not tell is none."""
    low, high = row["interval"]
    told = tells(row)
    over = f"{row['over_plain']:+.1%} ({low:+.1%} to {high:+.1%})" if told else "not told apart from noise"
    wall = f"{row['wall_over_plain']:+.1%}" if told else ""
    return f"| `{row['method']}` | {over} | {wall} | {row['memory_over_plain']:+.1%} |"


def tells(row: dict[str, Any]) -> bool:
    """Whether the interval is narrow enough to say something."""
    low, high = row["interval"]
    return high - low <= max(TIME_LIMIT, abs(row["over_plain"]) / 2)


def table(found: dict[str, Any]) -> str:
    """The section of the page."""
    term, rows = found["transport_term"], found["rows"]
    low, high = term["interval"]
    lines = [
        f"Plain step: {found['plain_milliseconds']:,.0f} ms and {found['plain_memory_mib']:,.0f} MiB. The transport "
        f"term by itself, value and gradient of {' x '.join(map(str, term['problems']))}: {term['over_plain']:.1%} of "
        f"the plain step ({low:.1%} to {high:.1%}).",
        "",
        "| method | over the plain step (95 % interval) | by the wall clock | peak memory over it |",
        "|---|---|---|---|",
        *(line(row) for row in rows),
        "",
        *aims(found),
    ]
    return "\n".join(lines)


def aims(found: dict[str, Any]) -> list[str]:
    """What the transport term was allowed, and what it takes."""
    by_name = {row["method"]: row for row in found["rows"]}
    lines = [
        _aim(
            "the transport term by itself",
            "of the plain step",
            found["transport_term"]["interval"][1],
            TIME_LIMIT,
        )
    ]
    if "sinkhorn" in by_name:
        memory = by_name["sinkhorn"]["memory_over_plain"]
        if tells(by_name["sinkhorn"]):
            most = by_name["sinkhorn"]["interval"][1]
            lines.append(_aim("a step with `sinkhorn`", "over the plain step", most, TIME_LIMIT))
        lines.append(_aim("its peak memory", "over the plain one", memory, MEMORY_LIMIT))
    return lines


def _aim(what: str, against: str, found: float, limit: float) -> str:
    return f"- {what}, at most {limit:.0%} {against}: {'met' if found <= limit else 'missed'} (at most {found:.1%})."


def doubts(found: dict[str, Any]) -> list[str]:
    """Why these numbers should not be published."""
    reasons = []
    for row in found["rows"]:
        low, high = row["interval"]
        if row["method"] == "none" and not low <= 0 <= high:
            reasons.append(
                f"the plain step differs from itself by {row['over_plain']:+.1%} ({low:+.1%} to {high:+.1%})"
            )
    low, high = found["transport_term"]["interval"]
    if high - low > TIME_LIMIT:
        reasons.append(
            f"the interval of the transport term is {high - low:.1%} wide, more than {TIME_LIMIT:.0%}"
        )
    return reasons


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="batch 32, five rounds; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=30, help="of none and sinkhorn; a third for the others")
    parser.add_argument(
        "--methods", nargs="*", default=list(METHODS), choices=list(METHODS), metavar="METHOD"
    )
    args = parser.parse_args()
    if args.render:
        show("distill", table(kept("distill")))
        return
    torch.set_num_threads(1)
    batch, rounds = (32, 5) if args.quick else (args.batch, args.rounds)
    names = ["none", *(name for name in args.methods if name != "none")]
    found = measure(names, batch, rounds)
    print(text := table(found))
    reasons = doubts(found)
    if reasons and not args.quick:
        raise SystemExit(
            f"nothing was published: {'; '.join(reasons)}. Run it on a quiet machine or with more --rounds."
        )
    write_section("distill", text, found, quick=args.quick)


if __name__ == "__main__":
    main()
