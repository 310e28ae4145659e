"""A student of smaller images than its teacher's: what it is worth that the teacher sees them as large as they are.

Digits from 20 noisy images each, as in `preceptor demo`, for a student that takes 14 px; teachers of letters and of
digits that take 28 px. Either the files have 28 px and `--image-size 14` does the rest, or they were shrunk to 14 px
beforehand, so that the teacher sees what is left, enlarged. Writes the table of docs/choosing.md.

    python benchmarks/sizes.py [--quick] [--workers 2]
    python benchmarks/sizes.py --render    # the table from the kept numbers
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from common import ROOT, kept, show, write_section
from draws import TEACHERS, TO_THE_END, accuracy_table, arguments, in_processes, teacher_of

from preceptor import Task
from preceptor.data.images import fit
from preceptor.data.split import Split
from preceptor.demo import Settings
from preceptor.distill.train import train

SIDE, METHODS, DRAWS = 14, ("sinkhorn", "sinkhorn+probe"), (5, 6, 7, 8)
COLUMNS = ("alone", "shrunk beforehand", "as they are")
PAGE = ROOT / "docs" / "choosing.md"
Cell = tuple[str, int]  # teacher, draw


def shrunk(task: Task) -> Task:
    """The same task in small files."""

    def small(split: Split) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([fit(split.pixels(index), SIDE) for index in range(len(split))]), split.labels

    return Task.from_arrays(*small(task.train), *small(task.test), task.classes, name=f"{task.name}, small")


def accuracies(cell: Cell, quick: bool) -> dict[str, dict[str, float]]:
    """Test accuracies of the students of one draw, by method."""
    name, draw = cell
    settings, teacher = Settings(), teacher_of(name, quick)
    task = Task(replace(settings, per_class=20, data_seed=draw).target)

    def reached(task: Task, method: str) -> float:
        given = {} if method == "none" else {"teacher": teacher}
        return train(task, student=settings.arch, method=method, image_size=SIDE, seed=draw, device="cpu",
                     progress=False, evaluate_every=10**6, **TO_THE_END, **given).accuracy  # fmt: skip

    alone, small = reached(task, "none"), shrunk(task)
    return {
        method: dict(zip(COLUMNS, (alone, reached(small, method), reached(task, method)), strict=True))
        for method in METHODS
    }


def table(result: dict[str, Any]) -> str:
    """Means over draws."""
    rows = result["rows"]
    lines = {}
    for teacher, method in itertools.product(TEACHERS, METHODS):
        some = [row["accuracies"][method] for row in rows if row["teacher"] == teacher]
        lines[f"{teacher}, `{method}`"] = [[found[column] for found in some] for column in COLUMNS]
    alone, *shown = COLUMNS
    return accuracy_table(("teacher, method", alone, *(f"images {how}" for how in shown)), lines, rows)


def main() -> None:
    args = arguments(__doc__).parse_args()
    if args.render:
        show("sizes", table(kept("sizes")), page=PAGE)
        return
    cells: list[Cell] = list(itertools.product(TEACHERS, DRAWS[:1] if args.quick else DRAWS))
    rows = []
    for (teacher, draw), found in in_processes(accuracies, cells, args):
        rows.append({"teacher": teacher, "draw": draw, "accuracies": found})
        print(rows[-1], flush=True)
    shown = table({"rows": rows})
    print(shown)
    write_section("sizes", shown, {"rows": rows}, quick=args.quick, page=PAGE)


if __name__ == "__main__":
    main()
