"""A student of smaller images than its teacher's: what it is worth that the teacher sees them as large as they are.

Digits from 20 noisy images each, as in `preceptor demo`, for a student that takes 14 px; teachers of letters and of
digits that take 28 px. Either the files have 28 px and `--image-size 14` does the rest, or they were shrunk to 14 px
beforehand, so that the teacher sees what is left, enlarged. Writes the table of docs/choosing.md.

    python benchmarks/sizes.py [--quick] [--workers 2]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from common import ROOT, write_section

from preceptor import Task
from preceptor.data.images import fit
from preceptor.data.split import Split
from preceptor.demo import Settings
from preceptor.distill.recipe import RECIPES
from preceptor.distill.train import train

TEACHERS = {"letters": 100, "digits": 200}  # and images a class
SIDE, METHODS, DRAWS = 14, ("sinkhorn", "sinkhorn+probe"), (5, 6, 7, 8)
COLUMNS = ("alone", "shrunk beforehand", "as they are")
Cell = tuple[str, int]  # teacher, draw


def shrunk(task: Task) -> Task:
    """The same task in small files."""

    def small(split: Split) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([fit(split.pixels(index), SIDE) for index in range(len(split))]), split.labels

    return Task.from_arrays(*small(task.train), *small(task.test), task.classes, name=f"{task.name}, small")


def accuracies(cell: Cell, quick: bool) -> dict[str, dict[str, float]]:
    """Test accuracies of the students of one draw, by method."""
    torch.set_num_threads(1)
    name, draw = cell
    settings = Settings()
    if quick:
        RECIPES.update({known: replace(RECIPES[known], epochs=2) for known in ("patient", "small")})
    source = f"glyphs:{name}?per_class={TEACHERS[name]}&test_per_class=20&noise={settings.noise}&seed=1000"
    teacher = train(Task(source), student=settings.arch, recipe="quick", batch_size=32, lr=0.1,
                    epochs=1 if quick else settings.teacher_epochs, device="cpu", progress=False)  # fmt: skip
    task = Task(replace(settings, per_class=20, data_seed=draw).target)

    def reached(task: Task, method: str) -> float:
        given = {} if method == "none" else {"teacher": teacher}
        return train(task, student=settings.arch, method=method, recipe="patient", image_size=SIDE, seed=draw,
                     device="cpu", progress=False, evaluate_every=10**6, **given).accuracy  # fmt: skip

    alone, small = reached(task, "none"), shrunk(task)
    return {
        method: dict(zip(COLUMNS, (alone, reached(small, method), reached(task, method)), strict=True))
        for method in METHODS
    }


def table(result: dict[str, Any]) -> str:
    """Means over draws."""
    rows = result["rows"]
    lines = [
        "| teacher, method | alone | images shrunk beforehand | images as they are |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for teacher, method in itertools.product(TEACHERS, METHODS):
        some = [row["accuracies"][method] for row in rows if row["teacher"] == teacher]
        cells = []
        for column in COLUMNS:
            values = [100 * found[column] for found in some]
            cells.append(f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else ""))
        lines.append(f"| {teacher}, `{method}` | " + " | ".join(cells) + " |")
    draws = len({row["draw"] for row in rows})
    return "\n".join(lines) + f"\n\nTest accuracy in percent, mean ± standard deviation of {draws} draws."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one draw, two epochs; keeps nothing")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)  # as the workers do
    cells: list[Cell] = list(itertools.product(TEACHERS, DRAWS[:1] if args.quick else DRAWS))
    rows = []
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        done = pool.map(accuracies, cells, itertools.repeat(args.quick))
        for (teacher, draw), found in zip(cells, done, strict=True):
            rows.append({"teacher": teacher, "draw": draw, "accuracies": found})
            print(rows[-1], flush=True)
    shown = table({"rows": rows})
    print(shown)
    write_section("sizes", shown, {"rows": rows}, quick=args.quick, page=ROOT / "docs" / "choosing.md")


if __name__ == "__main__":
    main()
