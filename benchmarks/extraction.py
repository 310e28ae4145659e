"""How fast a teacher's pass over photographs is on a CPU: `extract`, which `rank` uses, between a peer and the floor.

The peer is the loop that people write: torch's defaults, batches of 32, the same preprocessing. The floor is the
network alone on inputs that are ready, in whatever layout and batch is fastest for it. All three take turns in one
process, and medians over the rounds count. Weights are random, which costs the same as trained ones.

    python benchmarks/extraction.py [--quick] [--threads 1] [--rounds 3]
    python benchmarks/extraction.py --render    # the table from the kept numbers
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import timm
import torch
from common import kept, show, write_section
from torch import Tensor, nn

from preceptor import Task
from preceptor.zoo import Preprocessing, Teacher, extract

NETWORKS = ("resnet18", "resnet50", "mobilenetv2_100", "tf_efficientnet_lite0", "vit_tiny_patch16_224")
SIDE, IMAGES, CLASSES = 224, 24, 10
PLAIN_BATCH, BATCHES = 32, (1, 4, 8, 16, 32)
PREPROCESSING = Preprocessing(input_size=(3, SIDE, SIDE), resize=SIDE, crop="center", interpolation="bilinear",
                              mean=(0.5,) * 3, std=(0.5,) * 3)  # fmt: skip
Work = Callable[[], None]


def photographs(count: int) -> Task:
    """Noise of the size of small photographs."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 256, 256), dtype=np.uint8)
    labels = np.arange(count) % CLASSES
    names = tuple(f"class {number}" for number in range(CLASSES))
    return Task.from_arrays(pixels, labels, pixels[:CLASSES], labels[:CLASSES], names, name="noise")


def plain_loop(network: nn.Module, task: Task) -> Work:
    """What people write."""

    def work() -> None:
        found = []
        for start in range(0, len(task.train), PLAIN_BATCH):
            images = task.train.load(np.arange(start, min(start + PLAIN_BATCH, len(task.train))))
            with torch.no_grad():
                features = network.forward_head(network.forward_features(PREPROCESSING.apply(images)), True)
                found.append((features, network.get_classifier()(features)))

    return work


def bare(network: nn.Module, inputs: Tensor, batch: int) -> Work:
    """The network alone."""

    def work() -> None:
        with torch.inference_mode():
            for part in inputs.split(batch):
                network(part)

    return work


def seconds(work: Work) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(name: str, rounds: int, count: int) -> dict[str, Any]:
    """Images a second by the peer, by us, and at best."""
    task = photographs(count)
    network = timm.create_model(name, num_classes=CLASSES).eval()
    teacher = Teacher.from_module(timm.create_model(name, num_classes=CLASSES), name=name, classes=task.classes,
                                  preprocessing=PREPROCESSING)  # fmt: skip
    last = timm.create_model(name, num_classes=CLASSES).eval().to(memory_format=torch.channels_last)
    ready = PREPROCESSING.apply(task.train.load(np.arange(count)))
    works = {
        "plain loop": plain_loop(network, task),
        "ours": lambda: extract(teacher, task.train, cache=False),
    }
    for batch in BATCHES:
        works[f"bare, {batch}"] = bare(network, ready, batch)
        works[f"bare, channels last, {batch}"] = bare(
            last, ready.contiguous(memory_format=torch.channels_last), batch
        )
    for work in works.values():
        work()  # warm up
    taken: dict[str, list[float]] = {way: [] for way in works}
    for _ in range(rounds):
        for way, work in works.items():
            taken[way].append(seconds(work))
    return {"network": name, "rates": {way: count / median(times) for way, times in taken.items()}}


def table(result: dict[str, Any]) -> str:
    """One line a network."""
    lines = ["| network, 224 px | plain loop | ours | times faster | of the fastest bare pass |",
             "|---|---:|---:|---:|---:|"]  # fmt: skip
    for row in result["rows"]:
        rates = row["rates"]
        plain, ours = rates["plain loop"], rates["ours"]
        best = max((way for way in rates if way.startswith("bare")), key=rates.__getitem__)
        lines.append(f"| {row['network']} | {plain:.1f} | {ours:.1f} | {ours / plain:.2f} | {ours / rates[best]:.2f} "
                     f"(batches of {best.split(', ')[-1]}{', channels last' if 'last' in best else ''}) |")  # fmt: skip
    return "\n".join(
        [*lines, "", f"Images a second; medians of {result['rounds']} rounds of {result['images']} images."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one network, two rounds; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.render:
        show("extraction", table(kept("extraction")))
        return
    torch.set_num_threads(args.threads)
    rounds, count = (2, CLASSES) if args.quick else (args.rounds, IMAGES)
    rows = []
    for name in NETWORKS[:1] if args.quick else NETWORKS:
        rows.append(measure(name, rounds, count))
        print(rows[-1], flush=True)
    data = {"rows": rows, "rounds": rounds, "images": count}
    print(table(data))
    write_section("extraction", table(data), data, quick=args.quick)


if __name__ == "__main__":
    main()
