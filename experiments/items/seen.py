"""Whether it matters that the teacher has learnt from the student's own images. Not in the paper.

In the sliding-window protocol teacher and student share the training images of their common classes. Users do not: the
teacher of their choice has never seen their images. Here a teacher learns from one half of the images of its classes,
and students have either the same half or the other. The probe on its features is measured, too: where only a part of
the classes was seen, what sets their images apart from others is partly that they were seen.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from experiments import results
from experiments.book import COLOURS, NOT_RUN, Book, Chooser, Sample, chooser, plain_axes, save_figure, table
from experiments.jobs import Job, Scale, distillation
from experiments.lab import Lab
from preceptor.core import Outputs
from preceptor.distill.losses import Probe, fit_probe

NAME, TITLE = "seen", "Images that the teacher has seen, and others"
STUDENT, TEACHER = "wrn-16-1", "wrn-40-2"
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")
SEEN, UNSEEN = "cifar100-first", "cifar100-second"
WAYS = {SEEN: "seen", UNSEEN: "not seen"}
TASKS = (0, 2, 5, 1, 3)
FIRST = TASKS[:3]  # 100, 60 and 0 %
PROBES = f"{NAME}-probes"  # the file of what probes know
FINDINGS = (
    "With images that are new to the teacher every method gains more at each overlap that was run, those with a probe "
    "most of all where the teacher knows a part of the classes. So for the most part their low at 60 % in Fig. 5 comes "
    "from the protocol and not from the gap between the classes. One teacher and one split; 80 and 40 % were not run."
)
PROBED = (
    "Why: linear probes on the teacher's features, fitted on either half. Right answers in percent on the images of "
    "the fit and on test images, for classes that the teacher knows and for others, and how sure the teacher itself is "
    "of the known ones (mean of its largest probability). Where images of a part of the classes were seen, the probe "
    "is far worse at test images of these and better at those of others: as if it had learnt that a sure teacher means "
    "one of them, and took images of which the teacher is less sure for others."
)


def jobs(scale: Scale) -> list[Job]:
    """Students of both halves; where no class is shared neither was seen, and one does."""
    teacher = scale.teacher(SEEN, TEACHER)
    return [
        distillation(scale, NAME, data, STUDENT, method, teacher, task, seed, tier=4 + (task in TASKS[3:]))
        for task in scale.few(TASKS)
        for data in _halves(scale, task)
        for seed in scale.seeds
        for method in METHODS
    ]


def _halves(scale: Scale, task: int) -> tuple[str, ...]:
    return (SEEN, UNSEEN) if scale.kind(SEEN).overlap(0, task) else (UNSEEN,)


def measure(lab: Lab) -> None:
    """What a probe on the features of one half knows of test images; needs the teacher and no GPU."""
    spec = lab.scale.teacher(SEEN, TEACHER)
    known = set(lab.task(SEEN, spec.task)[2])
    path = lab.results / f"{PROBES}.jsonl"
    if lab.missing([spec]):
        print(f"{NAME}: the teacher is missing, nothing to measure yet")
        return
    teacher, weights = lab.teacher(spec), lab.weights_of(spec)
    there = {(row["data"], row["task"]) for row in results.read(path) if row["teacher_weights"] == weights}
    for task in lab.scale.few(TASKS):
        wanted = [data for data in _halves(lab.scale, task) if (data, task) not in there]
        if not wanted:
            continue
        _, test, names = lab.task(SEEN, task)
        common = np.array([name in known for name in names])
        fresh = lab.outputs(teacher, SEEN, test)
        for data in wanted:
            given = lab.outputs(teacher, data, lab.task(data, task)[0])
            probe = fit_probe(torch.from_numpy(given.features), torch.from_numpy(given.labels), len(names))
            results.append(path, [{
                "data": data, "task": task, "overlap": round(float(common.mean()), 6), "teacher": spec.arch,
                "teacher_weights": weights, "seed": spec.seed, "penalty": probe.penalty,
                "train": _known(probe, given, common), "test": _known(probe, fresh, common),
            }])  # fmt: skip


def _known(probe: Probe, images: Outputs, common: np.ndarray) -> dict[str, float | None]:
    """Shares of right answers of the probe, and the teacher's mean largest probability, by kind of class."""
    guesses = (torch.from_numpy(images.features) @ probe.weight.T + probe.bias).argmax(1).numpy()
    sure = torch.from_numpy(images.logits).softmax(1).amax(1).numpy()
    parts = {"common": common[images.labels], "other": ~common[images.labels]}
    return {
        f"{part}_{what}": float(values[chosen].mean()) if chosen.any() else None
        for part, chosen in parts.items()
        for what, values in (("right", guesses == images.labels), ("sure", sure))
    }


def section(book: Book, folder: Path) -> str:
    """Accuracies alone and gains, for both halves and every overlap, and the figure."""
    scale = book.scale_of(NAME)
    text = (
        "CIFAR-100, a WRN-40-2 that learnt from one half of the images of its 50 classes, WRN-16-1 students of 250 "
        "images a class, which are the teacher's own (seen) or the others (not seen). Accuracy of the student alone, "
        "and gains over it in points ± their standard error; where no class is shared all images are new to the "
        "teacher. Elsewhere on this page, as in the paper, students have the images from which the teacher learnt its "
        "classes."
    )
    choose = chooser(jobs(scale))
    shares = {task: scale.kind(SEEN).overlap(0, task) for task in sorted(scale.few(TASKS))}
    lines = []
    for data, way in WAYS.items():
        planned = [task for task in shares if choose(data=data, task=task)]
        cells = {
            task: book.accuracy(choose(data=data, task=task, name="none")).shown(digits=1) for task in planned
        }
        lines.append([f"{way}, `none`", *(cells.get(task, "–") for task in shares)])
        for method in METHODS[1:]:
            cells = {task: _shown(gain(book, choose, data, task, method)) for task in planned}
            lines.append([f"{way}, `{method}`", *(cells.get(task, "–") for task in shares)])
    head = ["images", *(f"{share:.0%}" for share in shares.values())]
    parts = [text, table(head, lines), FINDINGS, _draw(book, choose, shares, folder), _probes(book)]
    return "\n\n".join(part for part in parts if part)


def _probes(book: Book) -> str:
    """What probes on the last teacher's features know, a line for each overlap and half."""
    rows = [
        row for row in book.rows(PROBES) if row["teacher_weights"] == book.rows(PROBES)[-1]["teacher_weights"]
    ]
    rows.sort(key=lambda row: (-row["overlap"], row["data"]))
    kinds = (("known classes", "common_right"), ("others", "other_right"), ("teacher sure", "common_sure"))
    splits = (("fit", "train"), ("test", "test"))
    columns = {f"{kind}, {place}": (split, key) for kind, key in kinds for place, split in splits}
    lines = []
    for row in rows:
        values = [row[split][key] for split, key in columns.values()]
        shown = ["–" if value is None else f"{100 * value:.1f}" for value in values]
        lines.append([f"{row['overlap']:.0%}, {WAYS[row['data']]}", *shown])
    return f"{PROBED}\n\n{table(['images of the fit', *columns], lines)}" if rows else ""


def gain(book: Book, choose: Chooser, data: str, task: int, method: str) -> Sample:
    """Of a method over the student alone, on one half of the images."""
    return book.gains(choose(data=data, task=task, name=method), choose(data=data, task=task, name="none"))


def _shown(found: Sample) -> str:
    return f"{found.gain(1)} ({len(found.values)})" if found.values else NOT_RUN


def _draw(book: Book, choose: Chooser, shares: dict[int, float], folder: Path) -> str:
    figure, axis = plt.subplots(figsize=(7, 3.4))
    for colour, method in zip(COLOURS, METHODS[1:], strict=False):
        for data, style in ((SEEN, ":"), (UNSEEN, "-")):
            gains = {share: gain(book, choose, data, task, method) for task, share in shares.items()}
            known = [(100 * share, one) for share, one in gains.items() if one.values]
            errors = [0 if one.error != one.error else 100 * one.error for _, one in known]
            axis.errorbar([share for share, _ in known], [100 * one.mean for _, one in known], errors,
                          color=colour, linestyle=style, marker="o", markersize=4, capsize=2,
                          label=f"{method}, {WAYS[data]}")  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.8)
    axis.invert_xaxis()
    plain_axes(axis, "classes shared with the teacher, %", "gain over the student alone, points")
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return save_figure(figure, folder, NAME)
