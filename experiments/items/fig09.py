"""Fig. 9: representations of the true and of the fictitious student, by t-SNE."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.manifold import TSNE

from experiments import results
from experiments.book import COLOURS, NOT_RUN, Book, save_figure
from experiments.items import fig07
from experiments.jobs import Job, Scale
from experiments.lab import Lab

NAME, TITLE = "fig09", "Fig. 9: representations of the true and the fictitious student"
CLASSES = 10


def jobs(scale: Scale) -> list[Job]:
    """Fig. 7's."""
    return fig07.jobs(scale)


def measure(lab: Lab) -> None:
    """From the compact file of Fig. 7: the first teacher, ten classes of the first task."""
    for data, held, story in fig07.compact_files(lab, NAME):
        chosen = story["chosen"][str(story["tasks"][0])]
        if "student0_features" not in held:
            continue
        few = np.random.default_rng(0).permutation(len(chosen))[:CLASSES]
        rows = np.flatnonzero(np.isin(held["labels"], [chosen[k] for k in few]))
        own = np.flatnonzero(np.isin(held["labels"], chosen))
        features = {
            "student": held["student0_features"][np.searchsorted(own, rows)],
            "probe": held["teacher0_features"][rows],
        }
        points = {
            name: TSNE(perplexity=min(30, len(rows) / 4), random_state=0, init="pca").fit_transform(
                values.astype(np.float32)
            )
            for name, values in features.items()
        }
        results.append(lab.results / f"{NAME}.jsonl", [{
            "data": data, "seed": 0, "names": [story["classes"][chosen[k]] for k in few],
            "labels": [int(np.flatnonzero([chosen[k] == held["labels"][r] for k in few])[0]) for r in rows],
            **{name: np.round(place, 1).tolist() for name, place in points.items()},
        }])  # fmt: skip


def section(book: Book, folder: Path) -> str:
    """The figure."""
    rows = book.rows(NAME)
    text = (
        "t-SNE of ten classes of the first task, first teacher: features of its distilled student, and the teacher's "
        "features, on which the fictitious student is a linear model.\n\n"
    )
    return text + ("\n\n".join(_draw(row, folder) for row in rows) or f"*{NOT_RUN}*")


def _draw(row: dict, folder: Path) -> str:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    labels = np.array(row["labels"])
    for axis, name in zip(axes, ("student", "probe"), strict=True):
        points = np.array(row[name])
        for k, label in enumerate(row["names"]):
            some = points[labels == k]
            colour = COLOURS[k % len(COLOURS)] if k < len(COLOURS) else "#7F3F00"
            axis.scatter(some[:, 0], some[:, 1], s=6, color=colour, label=label)
        axis.set_title("true student" if name == "student" else "fictitious student", fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[1].legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    return save_figure(figure, folder, f"fig09-{row['data']}")
