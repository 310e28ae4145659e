"""Tab. 2: may the rows of the classifier stand for class centres?"""

from __future__ import annotations

from pathlib import Path

import torch

from experiments import results
from experiments.book import Book, table
from experiments.jobs import Job, Scale
from experiments.lab import Lab
from experiments.passes import clean_outputs
from preceptor import ot

NAME, TITLE = "tab02", "Tab. 2: nearest class mean with true and approximate centres"
PAPER = {"whole model": 95.15, "true centres": 94.47, "classifier rows": 94.53}
DATA, ARCH = "cifar100", "wrn-40-2"


def jobs(scale: Scale) -> list[Job]:
    """None: the teacher is that of Fig. 5."""
    return []


def measure(lab: Lab) -> None:
    """Test accuracy of the teacher in three ways, each with centres raw and on the unit sphere where that differs."""
    spec = lab.scale.teacher(DATA, ARCH)
    path = lab.results / f"{NAME}.jsonl"
    if any(row["teacher"] == spec.name for row in results.read(path)):
        return
    teacher = lab.teacher(spec)
    _, test, names = lab.task(DATA, 0)
    source = lab.source(DATA)
    features, logits = (part.cpu() for part in clean_outputs(teacher, test, source.mean, source.std))
    labels = test.labels.cpu()
    seen = lab.glance(spec, DATA, 0)
    means = ot.class_centers(torch.from_numpy(seen.features), torch.from_numpy(seen.labels), len(names))
    rows = teacher.classifier.weight.detach().float().cpu()
    unit = torch.nn.functional.normalize
    guesses = {
        "whole model": logits.argmax(1),
        "true centres": torch.cdist(features, means).argmin(1),
        "true centres, unit norm": (unit(features) @ unit(means).T).argmax(1),
        "classifier rows": torch.cdist(features, ot.classifier_centers(rows)).argmin(1),
        "classifier rows, raw": torch.cdist(features, rows).argmin(1),
    }
    common = {"data": DATA, "task": 0, "teacher": spec.name, "seed": spec.seed}
    results.append(path, [{**common, "way": way, "accuracy": float((guess == labels).float().mean())}
                          for way, guess in guesses.items()])  # fmt: skip


def section(book: Book, folder: Path) -> str:
    """The table."""
    rows = {row["way"]: row["accuracy"] for row in book.rows(NAME)}
    ways = list(dict.fromkeys([*PAPER, *rows]))
    lines = [[way, f"{PAPER[way]:.2f}" if way in PAPER else "–",
              f"{100 * rows[way]:.2f}" if way in rows else "not run yet"] for way in ways]  # fmt: skip
    return (
        "Test accuracy in percent of a WRN-(40,2). The paper's is trained on CIFAR-10, ours on the first window of "
        "CIFAR-100 (50 classes), so the levels differ and the gaps are what counts. "
        "True centres are means of 100 training images a class. `classifier rows` are those of "
        "Eq. (8), on the unit sphere.\n\n"
        + table(["", "paper (CIFAR-10)", "ours (CIFAR-100, 50 classes)"], lines)
    )
