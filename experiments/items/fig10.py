"""Fig. 10: coarse-grained selection, five domains."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments import results
from experiments.assessments import judges
from experiments.book import COLOURS, NOT_RUN, Book, chooser, plain_axes, save_figure, table
from experiments.jobs import Job, Scale, distillation
from experiments.lab import Lab

NAME, TITLE = "fig10", "Fig. 10: coarse-grained selection over five domains"
DOMAINS = ("birds", "cars", "dogs", "flowers", "fruits")
TEACHER, STUDENT = "mobilenet-1.0", "mobilenet-0.25"
SCORES = "fig10-scores"


def jobs(scale: Scale) -> list[Job]:
    """Students of every teacher, not only of the selected one: they say what the choice is worth."""
    found = []
    for seed in scale.seeds:
        for domain in scale.few(DOMAINS):
            own = scale.teacher(domain, TEACHER)
            found.append(distillation(scale, NAME, domain, STUDENT, "none", own, 0, seed, tier=41))
            for other in scale.few(DOMAINS):
                spec = scale.teacher(other, TEACHER)
                found.append(distillation(scale, NAME, domain, STUDENT, "sinkhorn", spec, 0, seed, tier=41))
    return found


def measure(lab: Lab) -> None:
    """Metrics of every teacher on every domain's training images."""
    path = lab.results / f"{SCORES}.jsonl"
    there = {(row["data"], row["teacher_data"]) for row in results.read(path)}
    domains = lab.scale.few(DOMAINS)
    if lab.missing([lab.scale.teacher(domain, TEACHER) for domain in domains]):
        print("fig10: teachers are missing, nothing to measure yet")
        return
    for domain in domains:
        found = []
        for other in domains:
            if (domain, other) in there:
                continue
            teacher = lab.teacher(lab.scale.teacher(other, TEACHER))
            outputs = lab.outputs(teacher, domain, lab.task(domain, 0)[0])
            given = {"features": outputs.features, "labels": outputs.labels, "logits": outputs.logits,
                     "classifier": teacher.classifier.weight.detach().float().cpu().numpy()}  # fmt: skip
            scores = {name: float(metric(**given)) for name, metric in judges().items()}
            found.append({"data": domain, "teacher_data": other, "scores": scores, "seed": 0})
        if found:
            results.append(path, found)


def section(book: Book, folder: Path) -> str:
    """The metric's matrix, what it chooses, and accuracies with and without."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    domains = scale.few(DOMAINS)
    text = (
        "40 classes of each domain, 30 training images each, 112 px, no weights from ImageNet; flowers and fruits "
        "stand for the paper's indoor scenes and aircraft, which were not to be had. The paper's figure has no "
        "numbers: its metric finds the own domain for each task, and students gain.\n\n"
    )
    scores = {(row["teacher_data"], row["data"]): row["scores"]["sinkhorn"] for row in book.rows(SCORES)}
    if len(scores) < len(domains) ** 2:
        return text + f"*{NOT_RUN}*"
    lines = [[other, *(f"{scores[other, domain]:.3f}" for domain in domains)] for other in domains]
    matrix = table(["metric: teacher / task", *domains], lines)
    lines, bars = [], []
    for domain in domains:
        best = max(domains, key=lambda other: scores[other, domain])
        alone = book.accuracy(choose(data=domain, name="none"))
        chosen = [j for j in choose(data=domain, name="sinkhorn") if j.teacher.data == best]
        others = {o: book.accuracy([j for j in choose(data=domain, name="sinkhorn") if j.teacher.data == o])
                  for o in domains}  # fmt: skip
        known = {o: s.mean for o, s in others.items() if s.values}
        lines.append(
            [
                domain,
                best,
                alone.shown(),
                book.accuracy(chosen).shown(),
                max(known, key=known.get, default="–"),
            ]
        )
        bars.append((domain, alone, book.accuracy(chosen)))
    head = [
        "task",
        "selected teacher",
        "student alone",
        "with the selected teacher",
        "best teacher in hindsight",
    ]
    return text + matrix + "\n\n" + table(head, lines) + "\n\n" + _draw(domains, scores, bars, folder)


def _draw(domains: list[str], scores: dict, bars: list, folder: Path) -> str:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
    values = np.array([[scores[other, domain] for domain in domains] for other in domains])
    values = (values - values.min(0)) / np.maximum(np.ptp(values, axis=0), 1e-12)
    left.imshow(values, cmap="Blues", vmin=0, vmax=1.4)
    for i in range(len(domains)):
        for j in range(len(domains)):
            left.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", fontsize=8)
    left.set_xticks(range(len(domains)), domains)
    left.set_yticks(range(len(domains)), domains)
    left.set_xlabel("task")
    left.set_ylabel("teacher")
    left.set_title("metric, scaled for each task", fontsize=10)
    places = np.arange(len(bars))
    for shift, colour, label, column in (
        (-0.2, COLOURS[7], "alone", 1),
        (0.2, COLOURS[0], "with selected teacher", 2),
    ):
        heights = [100 * bar[column].mean for bar in bars]
        errors = [0 if bar[column].error != bar[column].error else 100 * bar[column].error for bar in bars]
        right.bar(places + shift, heights, 0.38, yerr=errors, color=colour, label=label)
    right.set_xticks(places, [bar[0] for bar in bars])
    plain_axes(right, "", "student accuracy, %")
    right.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return save_figure(figure, folder, "fig10")
