"""Reading results for the page: the rows of planned jobs, means with spread, Markdown tables, small figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments import results
from experiments.jobs import EPOCHS, PAPER, Job, Scale
from experiments.rows import Rows

SEEDS = 3  # that a mean should be of
NOT_RUN = "not run yet"
# Okabe and Ito's colours, which the colour-blind tell apart, in a fixed order.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")


def in_words(parts: Iterable[str]) -> str:
    """One, another and the last."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one number."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """NaN where there is nothing."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def spread(self) -> float:
        """The standard deviation over repetitions; NaN below two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN below two."""
        return self.spread / math.sqrt(len(self.values)) if self.values else math.nan

    def shown(self, factor: float = 100, digits: int = 2, signed: bool = False) -> str:
        """Such as ``68.31 ± 0.22 (3)``."""
        if not self.values:
            return NOT_RUN
        sign = "+" if signed else ""
        spread = f" ± {factor * self.spread:.{digits}f}" if len(self.values) > 1 else ""
        return f"{factor * self.mean:{sign}.{digits}f}{spread} ({len(self.values)})"

    def gain(self, digits: int = 2) -> str:
        """A gain in points with the standard error of its mean, such as ``+2.09 ± 0.35``."""
        error = f" ± {100 * self.error:.{digits}f}" if len(self.values) > 1 else ""
        return f"{100 * self.mean:+.{digits}f}{error}"


class Book(Rows):
    """All results, and the plans that they belong to."""

    def __init__(self, folder: Path = results.RESULTS, scale: Scale = PAPER) -> None:
        super().__init__(folder)
        self.scale = scale

    def scale_of(self, name: str, **wanted: Any) -> Scale:
        """The paper's scale; where no row (with the given values) is at it, the epochs at which most were made."""
        rows = [row for row in self.rows(name, **wanted) if "epochs" in row and "teacher_epochs" in row]
        pairs = Counter((row["epochs"], row["teacher_epochs"]) for row in rows)
        if self.scale.smoke or not pairs or (EPOCHS, EPOCHS) in pairs:
            return self.scale
        epochs, teacher_epochs = pairs.most_common(1)[0][0]
        return replace(self.scale, epochs=epochs, teacher_epochs=teacher_epochs)

    def trained_again(self, name: str) -> str:
        """A remark where teachers of an experiment were trained more than once; its first rows do not say which."""
        found: dict[tuple, Counter] = {}
        for row in self.rows(name):
            if row.get("method") != "none":
                spec = tuple(
                    row.get(key) for key in ("teacher", "teacher_data", "teacher_task", "teacher_epochs")
                )
                found.setdefault(spec, Counter())[row.get("teacher_weights")] += 1
        counts = [
            f"{spec[0]} of {spec[1]}, task {spec[2] + 1}: {in_words(map(str, kinds.values()))} rows"
            for spec, kinds in found.items()
            if len(kinds) > 1
        ]
        if not counts:
            return ""
        told = "Teachers that were trained anew from the same seed, and how many rows each training taught"
        return f"{told}: {'; '.join(counts)}."

    def accuracy(self, jobs: Iterable[Job]) -> Sample:
        """Accuracies of those jobs that have been run and came to an end."""
        rows = [self.row(job) for job in jobs]
        return Sample(
            tuple(row["accuracy"] for row in rows if row is not None and row["accuracy"] is not None)
        )

    def gains(self, jobs: Iterable[Job], others: Iterable[Job]) -> Sample:
        """Differences of accuracy between jobs of the same seed, which saw the same batches."""
        first = {job.seed: self.accuracy([job]).mean for job in jobs}
        second = {job.seed: self.accuracy([job]).mean for job in others}
        found = [first[seed] - second[seed] for seed in first if seed in second]
        return Sample(tuple(gap for gap in found if math.isfinite(gap)))


Chooser = Callable[..., list[Job]]


def chooser(jobs: Sequence[Job]) -> Chooser:
    """A function that picks jobs by the values of their fields or of their `name`."""

    def choose(**wanted: Any) -> list[Job]:
        return [job for job in jobs if all(getattr(job, k) == v for k, v in wanted.items())]

    return choose


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; numbers stand to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def paper_and_ours(paper: float | None, ours: Sample) -> str:
    """A cell that holds both: ``71.56 / 68.31 ± 0.22 (3)``."""
    said = "–" if paper is None else f"{paper:.2f}"
    return f"{said} / {ours.shown()}"


def save_figure(figure: Any, folder: Path, name: str) -> str:
    """Write a figure and return the Markdown that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=90)
    plt.close(figure)
    return f"![{name}](figures/{name}.png)"


def plain_axes(axis: Any, x: str, y: str) -> None:
    """Labels, a light grid, no box."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def one_legend(axes: Sequence[Any]) -> None:
    """One legend beside the last axis: each axis has what was run, and the first of a name stands for all."""
    entries = {
        name: line for axis in axes for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    axes[-1].legend(entries.values(), entries.keys(), fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
