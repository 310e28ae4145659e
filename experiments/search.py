"""What makes the transport term gain at every overlap: variants of the Sinkhorn method, judged on validation images.

A fifth of each training class is held out; test images are not read. All variants of a window train in one pack, so
that they see the same batches. Rows go to ``results/search.jsonl``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cifar
import results
import torch
from packed import Pack, Schedule, Student
from torch import Tensor

from preceptor.core import Outputs
from preceptor.data.protocol import overlap
from preceptor.distill.losses import Context, Step, fit_probe
from preceptor.distill.losses.method import row_mean, task_loss, teacher_of
from preceptor.distill.losses.sinkhorn import Sinkhorn, schedule_factor
from preceptor.models import build

FIELDS = ("data", "student", "teacher", "overlap", "variant", "seed", "epochs", "per_class")


class Trusted(Sinkhorn):
    """The transport term, each image weighted by how far the teacher, carried over to my classes, knows its label.

    Free of its second marginal, the plan sends ``p_T`` to ``q = p_T softmax_n(-M_mn / epsilon)``: that is where the
    term pulls the student. The weight of an image is ``q(y) / max_n q(n)``.
    """

    def __init__(self, context: Context, **options: object) -> None:
        super().__init__(context, **options)
        self.register_buffer("bridge", torch.softmax(-self.cost / self.epsilon, dim=1))

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the weighted transport term."""
        teacher = teacher_of(step).logits
        carried = (teacher / self.temperature).softmax(1) @ self.bridge
        trust = carried.gather(1, step.labels[:, None])[:, 0] / carried.amax(1)
        rows = self.transport(teacher, step.student.logits) * trust
        weight = self.weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {"task": task_loss(step), "sinkhorn": weight * row_mean(rows, step.weights)}


def conditional_cost(outputs: Outputs, num_classes: int, epsilon: float) -> Tensor:
    """A cost whose transport carries over the empirical P(my class | teacher's class), as LEEP counts it."""
    shares = torch.from_numpy(outputs.logits).softmax(1)  # (N, C_T)
    labels = torch.nn.functional.one_hot(torch.from_numpy(outputs.labels), num_classes).float()
    joint = shares.T @ labels + 0.1
    return -epsilon * (joint / joint.sum(1, keepdim=True)).log()


def variants(outputs: Outputs, num_classes: int) -> dict[str, tuple[object, dict]]:
    """Name -> method and options."""
    probe = fit_probe(torch.from_numpy(outputs.features), torch.from_numpy(outputs.labels), num_classes)
    conditional = {"cost": "shallow", "matrix": conditional_cost(outputs, num_classes, 0.1)}
    return {
        "none": ("none", {}),
        "paper": ("sinkhorn", {}),
        "weight 3": ("sinkhorn", {"weight": 3.0}),
        "decay": ("sinkhorn", {"schedule": "linear-decay"}),
        "centred": ("sinkhorn", {"center": True}),
        "centred decay": ("sinkhorn", {"center": True, "schedule": "linear-decay"}),
        "data centres, centred": ("sinkhorn", {"centers": "data", "center": True}),
        "divergence": ("sinkhorn", {"value": "divergence", "center": True}),
        "conditional": ("sinkhorn", conditional),
        "trusted": (Trusted, {}),
        "trusted centred": (Trusted, {"center": True}),
        "trusted centred 20": (Trusted, {"center": True, "weight": 20.0}),
        "trusted conditional": (Trusted, conditional),
        "probe-kd": ("probe-kd", {"probe": probe}),
        "probe-kd 0.3": ("probe-kd", {"probe": probe, "weight": 0.3}),
        "sinkhorn+probe": ("sinkhorn+probe", {"probe": probe, "center": True}),
        "trusted centred decay": (Trusted, {"center": True, "schedule": "linear-decay"}),
        "sinkhorn+probe decay": (
            "sinkhorn+probe",
            {"probe": probe, "center": True, "schedule": "linear-decay"},
        ),
        "rkd": ("rkd", {}),
    }


def run_window(args: argparse.Namespace, data: cifar.Cifar, number: int, seed: int, own: Outputs) -> None:
    """Train all variants of one window and write their validation accuracies."""
    train, _, names = data.window(number)
    teacher_names = data.window(0)[2]
    rest, held = cifar.split(train, 0.2, seed=0)
    if args.per_class:
        rest = cifar.per_class(rest, args.per_class, seed)
    network = cifar.teacher(data, args.teachers, epochs=args.teacher_epochs)
    target = cifar.outputs(network, rest, data)
    chosen = {k: v for k, v in variants(target, len(names)).items() if not args.only or k in args.only}
    device = rest.pixels.device
    students = [
        Student(
            build(args.student, len(names), seed=seed).to(device).to(memory_format=torch.channels_last), m, o
        )
        for m, o in chosen.values()
    ]
    schedule = Schedule(epochs=args.epochs, batch_size=min(args.batch, len(rest.labels)))
    pack = Pack(students, rest, names, network, cifar.facts(network, teacher_names, own, target), data.mean, data.std,
                schedule, seed, compiled=device.type == "cuda")  # fmt: skip
    seconds = pack.train()
    pack.evaluate(held)
    common = {"data": "cifar100", "student": args.student, "teacher": cifar.TEACHER, "split": "validation",
              "overlap": overlap(teacher_names, names), "seed": seed, "epochs": args.epochs,
              "per_class": args.per_class, "seconds": round(seconds / len(students), 2)}  # fmt: skip
    rows = [
        {**common, "variant": name, "accuracy": s.accuracy, "loss": s.final_loss}
        for name, s in zip(chosen, students, strict=True)
    ]
    results.append(args.out, rows)
    base = rows[0]["accuracy"]
    gains = ", ".join(f"{r['variant']} {100 * (r['accuracy'] - base):+.1f}" for r in rows[1:])
    print(
        f"overlap {common['overlap']:.0%} seed {seed} ({seconds:.0f} s): none {base:.4f}; {gains}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar100.npz")
    parser.add_argument("--teachers", type=Path, required=True, help="folder for trained teachers")
    parser.add_argument("--student", default="wrn-16-1")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--teacher-epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--windows", type=int, nargs="*", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--per-class", type=int, help="labelled images a class")
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no window is started")
    parser.add_argument("--out", type=Path, default=results.RESULTS / "search.jsonl")
    args = parser.parse_args()
    started = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    data = cifar.load(args.data, device)
    network = cifar.teacher(data, args.teachers, epochs=args.teacher_epochs)
    own = cifar.outputs(network, data.window(0)[0], data)
    for seed in args.seeds:
        for number in args.windows:
            if time.perf_counter() - started > args.budget:
                print("budget spent", flush=True)
                return
            run_window(args, data, number, seed, own)


if __name__ == "__main__":
    main()
