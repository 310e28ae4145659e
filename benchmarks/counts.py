"""What a teacher, mixed images and patience are worth as labels become more: letters teach digits.

The data and the teacher of `preceptor demo`, on draws of its own; 5 to 160 training images of each digit, 1,000 test
images in fonts that nobody has seen; `--recipe small`, `mixed` and `patient` as they are, and the last of these with
180 epochs, mixed to the end. Writes the table and the figure of docs/when-it-helps.md.

    python benchmarks/counts.py [--quick] [--workers 2]
    python benchmarks/counts.py --only mixed    # the students of this recipe, the others as they were
    python benchmarks/counts.py --render        # table and figure from what was kept
"""

from __future__ import annotations

import functools
import itertools
from statistics import mean, stdev
from typing import Any

from common import ROOT, keep_rows, kept, show
from draws import TO_THE_END, accuracy_table, arguments, in_processes, teacher_of

from preceptor.data import Task
from preceptor.demo import Settings
from preceptor.distill.result import Result
from preceptor.distill.train import train

COUNTS, DRAWS = (5, 10, 20, 40, 80, 160), (5, 6, 7)
RECIPES = ("small", "mixed", "patient")
LONG = "180 epochs, mixed to the end"
TRAININGS = {**{name: {"recipe": name} for name in RECIPES}, LONG: TO_THE_END}
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")
PAGE = ROOT / "docs" / "when-it-helps.md"
FIGURE = ROOT / "docs" / "figures" / "counts.png"
Cell = tuple[int, str, int]  # images a class, training, draw


@functools.cache
def teacher(quick: bool) -> Result:
    """The demonstration's teacher of letters."""
    return teacher_of("letters", quick)


def accuracies(cell: Cell, quick: bool) -> dict[str, float]:
    """One student by each method."""
    count, recipe, draw = cell
    settings = Settings()
    task = Task(f"glyphs:digits?per_class={count}&test_per_class={settings.test_per_class}"
                f"&noise={settings.noise}&seed={draw}")  # fmt: skip
    taught = teacher(quick)
    shared = {"student": settings.arch, "seed": draw, "device": "cpu", "progress": False, **TRAININGS[recipe]}
    found = {}
    for method in METHODS:
        guide = {} if method == "none" else {"method": method, "teacher": taught}
        found[method] = train(task, evaluate_every=10**6, **shared, **guide).accuracy
    return found


def cells_of(quick: bool, only: str | None = None) -> list[Cell]:
    """The long ones first."""
    cells = list(itertools.product(reversed(COUNTS), [only] if only else reversed(TRAININGS), DRAWS))
    return [cell for cell in cells if cell[0] <= 10 and cell[2] == DRAWS[0]] if quick else cells


def rows_of(result: dict[str, Any], recipe: str, method: str) -> dict[int, list[float]]:
    """Accuracies of the draws by number of images a class."""
    rows = [row for row in result["rows"] if row["recipe"] == recipe]
    return {
        count: [row["accuracies"][method] for row in rows if row["count"] == count]
        for count in sorted({row["count"] for row in rows})
    }


def table(result: dict[str, Any]) -> str:
    """Accuracy in percent by recipe, method and count."""
    counts = sorted({row["count"] for row in result["rows"]})
    lines = {
        f"{recipe}, `{method}`": list(rows_of(result, recipe, method).values())
        for recipe, method in itertools.product(TRAININGS, METHODS)
    }
    return accuracy_table(("recipe, method", *map(str, counts)), lines, result["rows"])


def draw(result: dict[str, Any]) -> None:
    """Accuracy against the number of labels, a line for each method, a panel for each recipe."""
    import matplotlib.pyplot as plt
    from experiments.book import COLOURS, MARKERS, one_legend, plain_axes

    figure, axes = plt.subplots(1, len(RECIPES), figsize=(12, 3.4), sharey=True)
    for axis, recipe in zip(axes, RECIPES, strict=True):
        for colour, marker, method in zip(("black", *COLOURS), ("o", *MARKERS), METHODS, strict=False):
            found = rows_of(result, recipe, method)
            means, spreads = ([100 * of(values) for values in found.values()] for of in (mean, stdev))
            axis.errorbar(list(found), means, spreads, label=method, color=colour, marker=marker, markersize=4,
                          linewidth=1.2, capsize=2)  # fmt: skip
        axis.set_xscale("log")
        axis.set_xticks(COUNTS, map(str, COUNTS))
        axis.minorticks_off()
        axis.set_title(f"--recipe {recipe}", fontsize=10)
        plain_axes(axis, "labelled images a class", "test accuracy, %" if axis is axes[0] else "")
    one_legend(axes)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=TRAININGS, help="a training; rows of others stay as they were")
    args = parser.parse_args()
    if not args.render:
        rows = []
        for (count, recipe, which), found in in_processes(accuracies, cells_of(args.quick, args.only), args):
            rows.append({"count": count, "recipe": recipe, "draw": which, "accuracies": found})
            print(rows[-1], flush=True)
        if args.quick:
            print(table({"rows": rows}))
            return
        keep_rows("counts", rows, ("count", "recipe", "draw"))
    result = kept("counts")
    show("counts", table(result), page=PAGE)
    draw(result)


if __name__ == "__main__":
    main()
