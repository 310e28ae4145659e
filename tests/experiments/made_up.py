"""Rows of results with accuracies of our choice."""

from __future__ import annotations

import json

from experiments.items import fig05
from experiments.jobs import PAPER


def write(folder, experiment, jobs_and_accuracies):
    lines = [json.dumps({**job.identity(), "options": job.settings(), "accuracy": accuracy}) for job, accuracy in
             jobs_and_accuracies]  # fmt: skip
    (folder / f"{experiment}.jsonl").write_text("\n".join(lines) + "\n")


def figure_five(gain, seeds=(0, 1, 2)):
    return [
        (job, 0.7 + 0.001 * seed + (gain(task, seed) if job.method == "sinkhorn" else 0))
        for task in range(6)
        for seed in seeds
        for job in fig05.setting(PAPER, "cifar100", "wrn-16-1", task, seed)
        if job.name in ("none", "sinkhorn")
    ]


def mixed_early(alone, gain, seeds=(0, 1, 2)):
    return [
        (job, 0.7 + 0.001 * seed + alone(task) + (gain(task) if job.method == "sinkhorn" else 0))
        for task in range(6)
        for seed in seeds
        for job in fig05.mixed(PAPER, task, seed)
    ]


def score_rows(scores, accuracies):
    return [{"data": "cifar100", "per_class": None, "task": task, "teacher": "wrn-40-2", "teacher_task": place,
             "teacher_epochs": 60, "accuracy": accuracy,
             "scores": {name: values[place] for name, values in scores.items()}}
            for task in range(6) for place, accuracy in enumerate(accuracies)]  # fmt: skip
