"""`preceptor demo` on other draws of its digits, and students of every teacher in its zoo.

The demonstration shows the first teacher and the last on one draw. Here are four draws, three students of each teacher,
held against the three alone of the same seeds. Writes the table of docs/when-it-helps.md.

    python benchmarks/demo.py [--quick] [--workers 2]
    python benchmarks/demo.py --render    # the table from the kept numbers
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from common import ROOT, kept, show, write_section
from draws import arguments, in_processes

from preceptor import Task
from preceptor.demo import Settings, run_demo
from preceptor.demo.settings import METRICS, TEACHERS
from preceptor.demo.students import train_arm
from preceptor.rank.assess import limited_threads

SEEDS, DRAWS = (
    3,
    {0: 0, 1: 20, 2: 40, 3: 60},
)  # of the data -> of the first student; the demonstration has the first
PAGE = ROOT / "docs" / "when-it-helps.md"


def told(draw: int, quick: bool) -> dict[str, Any]:
    """Scores of the teachers by each metric, and what their students and those alone reached."""
    settings = replace(Settings(), data_seed=draw, first_seed=DRAWS[draw])
    if quick:
        settings = replace(settings, teacher_epochs=1, student_epochs=2)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        story = run_demo(folder, seeds=SEEDS, settings=settings)
        task = Task(settings.target)

        def reached(teacher: str) -> list[float]:
            arm = train_arm(f"{folder}/zoo/{teacher}", task, folder, SEEDS, settings, lambda text: None)
            return list(arm.accuracies)

        with limited_threads(1):
            students = {teacher: reached(teacher) for teacher in TEACHERS}
    scores = {row["name"]: row["scores"] for row in story["ranking"]}
    return {
        "draw": draw,
        "scores": scores,
        "alone": story["students"]["alone"]["accuracies"],
        "students": students,
    }


def gains(rows: list[dict[str, Any]], teacher: str) -> list[float]:
    """Points that each student of a teacher gained over the one alone of its seed, draw by draw."""
    return [
        100 * (taught - alone)
        for row in rows
        for taught, alone in zip(row["students"][teacher], row["alone"], strict=True)
    ]


def places(row: dict[str, Any], metric: str) -> dict[str, int]:
    """Teacher -> its place by a metric, 1 for the first."""
    order = sorted(row["scores"], key=lambda teacher: -row["scores"][teacher][metric])
    return {teacher: place for place, teacher in enumerate(order, 1)}


def table(result: dict[str, Any]) -> str:
    """A line for each teacher, those first that `bridge` puts first."""
    rows = result["rows"]
    by_metric = {metric: [places(row, metric) for row in rows] for metric in METRICS}
    first = sorted(TEACHERS, key=lambda teacher: mean(found[teacher] for found in by_metric["bridge"]))
    head = ["teacher", "gain", *(f"draw {row['draw'] + 1}" for row in rows), *(f"`{m}`" for m in METRICS)]
    lines = [
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        "| none |  | "
        + " | ".join(f"{100 * mean(row['alone']):.1f}" for row in rows)
        + " |  " * len(METRICS)
        + "|",
    ]
    for teacher in first:
        won = gains(rows, teacher)
        spread = f" ± {stdev(won) / len(won) ** 0.5:.1f}" if len(won) > 1 else ""
        cells = [
            f"{mean(won):+.1f}{spread}",
            *(f"{100 * mean(row['students'][teacher]):.1f}" for row in rows),
        ]
        cells += [", ".join(str(found[teacher]) for found in by_metric[metric]) for metric in METRICS]
        lines.append(f"| {teacher} | " + " | ".join(cells) + " |")
    pairs = len(gains(rows, first[0]))
    return "\n".join(lines) + (
        f"\n\nTest accuracy in percent, mean of {SEEDS} students; gain in points over the student alone of the same "
        f"seed, ± the standard error over {pairs} pairs; the teacher's place by each metric, draw by draw."
    )


def main() -> None:
    args = arguments(__doc__).parse_args()
    if args.render:
        show("demo", table(kept("demo")), page=PAGE)
        return
    draws = list(DRAWS)[:1] if args.quick else list(DRAWS)
    rows = []
    for _, row in in_processes(told, draws, args):
        rows.append(row)
        print(row, flush=True)
    shown = table({"rows": rows})
    print(shown)
    write_section("demo", shown, {"rows": rows}, quick=args.quick, page=PAGE)


if __name__ == "__main__":
    main()
