"""Tab. 13: seconds that metrics take, given a teacher's outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
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
from preceptor.metrics.scatter import forget

NAME, TITLE = "tab13", "Tab. 13: time of metrics"
DATA, TASK, REPEATS = "cifar100", 2, 3
# How the seconds are taken. Rows of another protocol, or of none, stay in the file and count no more.
PROTOCOL = "one call to warm up, then each with nothing shared from before"
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
    there = {row["metric"] for row in counted(results.read(path)) if row["teacher"] == spec.name}
    held = inputs(lab, spec, TASK)
    for name, metric in METRICS.items():
        if name in there or "student_logits" in needs(name):
            continue
        seconds, score = timed(lambda metric=metric: metric(**held))
        results.append(path, [{
            "data": DATA, "task": TASK, "teacher": spec.name, "metric": name, "protocol": PROTOCOL,
            "seconds": seconds, "score": score, "samples": len(held["labels"]),
            "features": held["features"].shape[1], "threads": torch.get_num_threads(),
            "load": round(os.getloadavg()[0], 2),
        }])  # fmt: skip


def counted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that were timed as `PROTOCOL` says."""
    return [row for row in rows if row.get("protocol") == PROTOCOL]


def timed(call: Callable[[], float]) -> tuple[list[float], float]:
    """Seconds of each of the repeats, and what was found."""
    seconds, score = [], float(call())
    for _ in range(REPEATS):
        forget()  # metrics share the moments of the features: the second to ask would get them for nothing
        began = time.perf_counter()
        score = float(call())
        seconds.append(round(time.perf_counter() - began, 4))
    return seconds, score


def section(book: Book, folder: Path) -> str:
    """The table."""
    rows = {row["metric"]: row for row in counted(book.rows(NAME))}
    lines = []
    for name in dict.fromkeys([*PAPER, *rows]):
        row = rows.get(name)
        ours = Sample(tuple(row["seconds"])).shown(1, 3) if row else NOT_RUN
        lines.append([name, f"{PAPER[name]:.2f}" if name in PAPER else "–", ours])
    return (
        "Seconds for one teacher, its outputs given: mean ± standard deviation of three runs, each of which computes "
        "the moments of the features anew. The paper does not name its machine or sizes."
        f"{_place(list(rows.values()))}\n\n" + table(["metric", "paper", "ours"], lines)
    )


def _place(rows: list[dict[str, Any]]) -> str:
    """Sizes, and every machine and load that there were."""
    if not rows:
        return ""
    places = dict.fromkeys(
        f"{row['samples']:,} images, {row['features']} features, {row['threads']} thread(s), "
        f"{row['evidence']['hardware']}"
        for row in rows
    )
    loads = [row["load"] for row in rows]
    return f" Ours: {'; '.join(places)}; load of the machine {min(loads):.1f} to {max(loads):.1f}."
