"""What `preceptor run` does by itself: two methods of which held-out images choose, then all labels.

Digits from 10, 20 and 160 noisy images each, as in `preceptor demo`, from a teacher of letters and from one of digits;
test fonts that nobody has seen. Every number is a real `run` with nothing set. Writes the table of docs/choosing.md.

    python benchmarks/choice.py [--quick] [--workers 2]
    python benchmarks/choice.py --only 160    # runs with so many images a class, the others as they were
    python benchmarks/choice.py --render      # the table from the kept numbers
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from typing import Any

from common import ROOT, keep_rows, kept, show
from draws import TEACHERS, accuracy_table, arguments, in_processes, teacher_of

from preceptor import Task, Zoo, run
from preceptor.demo import Settings
from preceptor.distill.saved_run import score_run
from preceptor.pipeline.trials import METHODS_TRIED

COUNTS, DRAWS = (10, 20, 160), (5, 6, 7, 8)
COLUMNS = ("plain", *METHODS_TRIED, "chosen", "chosen, all labels", "plain, all labels")
PAGE = ROOT / "docs" / "choosing.md"
Cell = tuple[str, int, int]  # teacher, images a class, draw


def outcome(cell: Cell, quick: bool) -> dict[str, float]:
    """Test accuracies of one run's students."""
    name, count, draw = cell
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        zoo = Zoo(f"{folder}/zoo")
        teacher_of(name, quick, out=f"{folder}/teacher")
        zoo.add(f"run:{folder}/teacher", name=name)
        task = Task(replace(settings, per_class=count, data_seed=draw).target)
        result = run(
            zoo, task, student=settings.arch, out=f"{folder}/run", seed=draw, device="cpu", report=False
        )
        scores = {trial.method: score_run(trial.path, task, "cpu").accuracy for trial in result.trials}
    found = (*(scores[method] for method in ("none", *METHODS_TRIED)), scores[result.method])
    return dict(zip(COLUMNS, (*found, result.accuracy, result.baseline_accuracy), strict=True))


def table(result: dict[str, Any]) -> str:
    """Means over draws."""
    rows = result["rows"]
    lines = {}
    for teacher, count in sorted({(row["teacher"], row["count"]) for row in rows}):
        some = [row["accuracies"] for row in rows if (row["teacher"], row["count"]) == (teacher, count)]
        lines[f"{teacher}, {count}"] = [[found[column] for found in some] for column in COLUMNS]
    shown = accuracy_table(("teacher, images a class", *COLUMNS), lines, rows)
    return f"{shown} The first four columns have seen 80 % of the labels; the rest chose."


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--only", type=int, choices=COUNTS, help="images a class; rows of others stay as they were"
    )
    args = parser.parse_args()
    if not args.render:
        counts = [args.only] if args.only else COUNTS
        cells: list[Cell] = list(itertools.product(TEACHERS, counts, DRAWS[:1] if args.quick else DRAWS))
        rows = []
        for (teacher, count, draw), accuracies in in_processes(outcome, cells, args):
            rows.append({"teacher": teacher, "count": count, "draw": draw, "accuracies": accuracies})
            print(rows[-1], flush=True)
        print(table({"rows": rows}))
        if args.quick:
            return
        keep_rows("choice", rows, ("teacher", "count", "draw"))
    show("choice", table(kept("choice")), page=PAGE)


if __name__ == "__main__":
    main()
