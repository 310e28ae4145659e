"""Tab. 13: seconds that metrics take, given a teacher's outputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments import results
from experiments.book import NOT_RUN, Book, Sample, table
from experiments.items.fig05 import TEACHERS
from experiments.jobs import Job, Scale
from experiments.lab import Lab
from preceptor.metrics import METRICS, needs

NAME, TITLE = "tab13", "Tab. 13: time of metrics"
DATA, TASK, REPEATS = "cifar100", 2, 3
PAPER = {"nce": 0.12, "leep": 0.11, "logme": 0.42, "sinkhorn": 0.74}


def jobs(scale: Scale) -> list[Job]:
    """None: the teacher is that of Fig. 5."""
    return []


def inputs(lab: Lab, spec: Any, task: int) -> dict[str, np.ndarray]:
    """Everything a metric may ask for, of a teacher on a task's training images."""
    outputs = lab.glance(spec, DATA, task)
    classifier = lab.teacher(spec).classifier.weight.detach().float().cpu().numpy()
    return {"features": outputs.features, "labels": outputs.labels, "logits": outputs.logits,
            "classifier": classifier}  # fmt: skip


def measure(lab: Lab) -> None:
    """Every metric that needs no trained student, on the host, on 100 training images a class of the 60 % task."""
    spec = lab.scale.teacher(DATA, TEACHERS[DATA])
    path = lab.results / f"{NAME}.jsonl"
    there = {row["metric"] for row in results.read(path) if row["teacher"] == spec.name}
    held = inputs(lab, spec, TASK)
    for name, metric in METRICS.items():
        if name in there or "student_logits" in needs(name):
            continue
        seconds = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            score = metric(**held)
            seconds.append(round(time.perf_counter() - began, 4))
        results.append(path, [{
            "data": DATA, "task": TASK, "teacher": spec.name, "metric": name, "seconds": seconds, "score": float(score),
            "samples": len(held["labels"]), "features": held["features"].shape[1], "threads": torch.get_num_threads(),
        }])  # fmt: skip


def section(book: Book, folder: Path) -> str:
    """The table."""
    rows = {row["metric"]: row for row in book.rows(NAME)}
    lines = []
    for name in dict.fromkeys([*PAPER, *rows]):
        row = rows.get(name)
        ours = Sample(tuple(row["seconds"])).shown(1, 3) if row else NOT_RUN
        lines.append([name, f"{PAPER[name]:.2f}" if name in PAPER else "–", ours])
    one = next(iter(rows.values()), None)
    place = "" if one is None else (
        f" Ours: {one['samples']:,} images, {one['features']} features, {one['threads']} thread(s), "
        f"{one['evidence']['hardware']}."
    )  # fmt: skip
    return (
        "Seconds for one teacher, its outputs given: mean ± standard deviation of three runs, on a machine that others "
        "used at the same time. The paper does not name "
        f"its machine or sizes.{place}\n\n" + table(["metric", "paper", "ours"], lines)
    )
