"""Whether it matters that the teacher has learnt from the student's own images: letters of overlapping windows.

As in the paper's protocol a teacher knows 20 of 52 letters and a student wants 20, of which a share is common. The
images of the common classes are those from which the teacher learnt (seen), as in that protocol, or others (not seen),
as a user's are. 40 noisy images a class, the network and the recipe of `preceptor demo`. Writes the tables of
docs/when-it-helps.md.

    python benchmarks/seen.py [--quick] [--workers 2]
    python benchmarks/seen.py --patient               # a second table: images mixed up, three times the epochs
    python benchmarks/seen.py [--patient] --render    # the table from the kept numbers
"""

from __future__ import annotations

import functools
import itertools
from statistics import mean, stdev
from typing import Any

from common import ROOT, kept, show, write_section
from draws import arguments, in_processes, school

from preceptor.data import Task
from preceptor.demo import Settings
from preceptor.distill.result import Result

DRAWS, WINDOW = (5, 6, 7, 8, 9, 10), 20
SHARES, PATIENT_SHARES = (1.0, 0.6, 0.4, 0.0), (1.0, 0.6)
METHODS = ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")
IMAGES, TEST_IMAGES, TEACHER_EPOCHS, EPOCHS = 40, 100, 60, 30
WAYS = ("seen", "not seen")
PAGE = ROOT / "docs" / "when-it-helps.md"
Cell = tuple[int, float, str, bool]  # draw, share of common classes, way, whether patiently


def letters(seed: int) -> Task:
    """All letters in images of their own."""
    noise = Settings().noise
    return Task(f"glyphs:letters?per_class={IMAGES}&test_per_class={TEST_IMAGES}&noise={noise}&seed={seed}")


@functools.cache
def teacher(draw: int, quick: bool) -> Result:
    """It knows the first window."""
    task = letters(10 * draw).window(0, WINDOW, seed=draw)
    return school(task, Settings().arch, 1 if quick else TEACHER_EPOCHS, draw)


def accuracies(cell: Cell, quick: bool) -> dict[str, float]:
    """One student by each method."""
    draw, share, way, patient = cell
    images = letters(10 * draw + WAYS.index(way))
    task = images.window(round((1 - share) * WINDOW), WINDOW, seed=draw)
    taught, found = teacher(draw, quick), {}
    epochs, mixing = (3 * EPOCHS, {"mixup": 1.0}) if patient else (EPOCHS, {})
    for method in METHODS:
        guide = {} if method == "none" else {"method": method, "teacher": taught}
        found[method] = school(
            task, Settings().arch, 2 if quick else epochs, draw, **guide, **mixing
        ).accuracy
    return found


def cells_of(quick: bool, patient: bool) -> list[Cell]:
    """Draw by draw, so that a process trains few teachers; without a common class nothing is seen."""
    cells = itertools.product(DRAWS, PATIENT_SHARES if patient else SHARES, WAYS, [patient])
    return [
        cell for cell in cells if cell[1:3] != (0.0, "seen") and (not quick or cell[:2] == (DRAWS[0], 0.6))
    ]


def table(result: dict[str, Any]) -> str:
    """Accuracy alone and gains, by way, method and share."""
    rows = result["rows"]
    shares = sorted({row["share"] for row in rows}, reverse=True)
    lines = [
        "| images, method | " + " | ".join(f"{share:.0%}" for share in shares) + " |",
        "|---|" + "---:|" * len(shares),
    ]
    for way, method in itertools.product(WAYS, METHODS):
        cells = [
            [row["accuracies"] for row in rows if (row["way"], row["share"]) == (way, share)]
            for share in shares
        ]
        lines.append(f"| {way}, `{method}` | " + " | ".join(_cell(found, method) for found in cells) + " |")
    draws = len({row["draw"] for row in rows})
    return "\n".join(lines) + (
        f"\n\nTest accuracy of the student alone in percent, and gains over it in points, mean of {draws} draws ± the "
        "standard error."
    )


def _cell(found: list[dict[str, float]], method: str) -> str:
    if not found:
        return ""
    values = [100 * (one[method] - (0 if method == "none" else one["none"])) for one in found]
    error = f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{mean(values):{'' if method == 'none' else '+'}.1f}{error}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--patient", action="store_true", help="images mixed up, three times the epochs")
    args = parser.parse_args()
    name, marker = ("seen_patient", "seen-patient") if args.patient else ("seen", "seen")
    if args.render:
        show(name, table(kept(name)), page=PAGE, marker=marker)
        return
    rows = []
    for (draw, share, way, _), found in in_processes(accuracies, cells_of(args.quick, args.patient), args):
        rows.append({"draw": draw, "share": share, "way": way, "accuracies": found})
        print(rows[-1], flush=True)
    result = {"rows": rows}
    print(table(result))
    write_section(name, table(result), result, quick=args.quick, page=PAGE, marker=marker)


if __name__ == "__main__":
    main()
