"""Whether it matters that the teacher has learnt from the student's own images. Not in the paper.

In the sliding-window protocol teacher and student share the training images of their common classes. Users do not: the
teacher of their choice has never seen their images. Here a teacher learns from one half of the images of its classes,
and students have either the same half or the other.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from experiments.book import COLOURS, NOT_RUN, Book, Chooser, Sample, chooser, plain_axes, save_figure, table
from experiments.jobs import Job, Scale, distillation

NAME, TITLE = "seen", "Images that the teacher has seen, and others"
STUDENT, TEACHER = "wrn-16-1", "wrn-40-2"
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")
SEEN, UNSEEN = "cifar100-first", "cifar100-second"
WAYS = {SEEN: "seen", UNSEEN: "not seen"}
TASKS = (0, 2, 5, 1, 3)


def jobs(scale: Scale) -> list[Job]:
    """Students of both halves; where no class is shared neither was seen, and one does."""
    teacher = scale.teacher(SEEN, TEACHER)
    kind = scale.kind(SEEN)
    return [
        distillation(scale, NAME, data, STUDENT, method, teacher, task, seed, tier=4 + (task in TASKS[3:]))
        for task in scale.few(TASKS)
        for data in ((SEEN, UNSEEN) if kind.overlap(0, task) else (UNSEEN,))
        for seed in scale.seeds
        for method in METHODS
    ]


def section(book: Book, folder: Path) -> str:
    """Accuracies alone and gains, for both halves and every overlap, and the figure."""
    scale = book.scale_of(NAME)
    text = (
        "CIFAR-100, a WRN-40-2 that learnt from one half of the images of its 50 classes, WRN-16-1 students of 250 "
        "images a class, which are the teacher's own (seen) or the others (not seen). Accuracy of the student alone, "
        "and gains over it in points; where no class is shared all images are new to the teacher. Elsewhere on this "
        "page, as in the paper, students have the images from which the teacher learnt its classes."
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
            cells = {task: _shown(_gain(book, choose, data, task, method)) for task in planned}
            lines.append([f"{way}, `{method}`", *(cells.get(task, "–") for task in shares)])
    head = ["images", *(f"{share:.0%}" for share in shares.values())]
    return "\n\n".join([text, table(head, lines), _draw(book, choose, shares, folder)])


def _gain(book: Book, choose: Chooser, data: str, task: int, method: str) -> Sample:
    return book.gains(choose(data=data, task=task, name=method), choose(data=data, task=task, name="none"))


def _shown(gain: Sample) -> str:
    return f"{gain.gain(1)} ({len(gain.values)})" if gain.values else NOT_RUN


def _draw(book: Book, choose: Chooser, shares: dict[int, float], folder: Path) -> str:
    figure, axis = plt.subplots(figsize=(7, 3.4))
    for colour, method in zip(COLOURS, METHODS[1:], strict=False):
        for data, style in ((SEEN, ":"), (UNSEEN, "-")):
            gains = {share: _gain(book, choose, data, task, method) for task, share in shares.items()}
            known = [(100 * share, gain) for share, gain in gains.items() if gain.values]
            errors = [0 if gain.error != gain.error else 100 * gain.error for _, gain in known]
            axis.errorbar([share for share, _ in known], [100 * gain.mean for _, gain in known], errors,
                          color=colour, linestyle=style, marker="o", markersize=4, capsize=2,
                          label=f"{method}, {WAYS[data]}")  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.8)
    axis.invert_xaxis()
    plain_axes(axis, "classes shared with the teacher, %", "gain over the student alone, points")
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return save_figure(figure, folder, NAME)
