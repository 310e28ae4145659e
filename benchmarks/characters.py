"""Settings of the transport term where labels are few and no class is shared: letters teach digits.

The setting of `preceptor demo` (20 noisy images of each digit, test fonts that nobody has seen) on draws of its own,
two students each. Writes the table of docs/choosing.md.

    python benchmarks/characters.py [--quick] [--workers 2]
    python benchmarks/characters.py --only patient    # rows with this word anew, the others as they were
    python benchmarks/characters.py --render          # the table from the kept numbers
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from common import ROOT, evidence, kept, show, write
from draws import arguments, in_processes, school

from preceptor.data import Task
from preceptor.demo import Settings
from preceptor.distill.result import Result

DRAWS, ALONE = (5, 6, 7, 8), "`none`"
STRONG = {"weight": 100.0, "temperature": 6.0, "center": True}  # spelled out, so that rows stay what they say
BEFORE = {"weight": 10.0, "temperature": 3.0, "center": True}
PATIENT = {"mixup": 1.0, "lengthened": 3}  # three times the epochs, images mixed up, here to the very end
MORE = {"mixup": 1.0, "epochs": 8, "unlabelled": "200 of each digit"}  # 1,000 steps, 840 with `PATIENT`
CONSTANT, FALLING = {"schedule": "constant"}, {"schedule": "linear-decay"}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "`none`": ("none", {}),
    "`sinkhorn`": ("sinkhorn", {**STRONG, **FALLING}),
    "`sinkhorn`, `weight=10 temperature=3`": ("sinkhorn", {**BEFORE, **FALLING}),
    "`sinkhorn`, `weight=10 temperature=3 schedule=constant center=false`": (
        "sinkhorn", {**BEFORE, **CONSTANT, "center": False}),
    "`sinkhorn`, `weight=30 temperature=3`": ("sinkhorn", {**BEFORE, **FALLING, "weight": 30.0}),
    "`sinkhorn`, `temperature=8`": ("sinkhorn", {**STRONG, **FALLING, "temperature": 8.0}),
    "`sinkhorn`, `epsilon=0.03`": ("sinkhorn", {**STRONG, **FALLING, "epsilon": 0.03}),
    "`sinkhorn`, `epsilon=0.3`": ("sinkhorn", {**STRONG, **FALLING, "epsilon": 0.3}),
    "`sinkhorn`, `epsilon=1`": ("sinkhorn", {**STRONG, **FALLING, "epsilon": 1.0}),
    "`sinkhorn`, `weight=30 temperature=3 epsilon=0.3`": (
        "sinkhorn", {**BEFORE, **FALLING, "weight": 30.0, "epsilon": 0.3}),
    "`sinkhorn`, `cost=constant`": ("sinkhorn", {**STRONG, **FALLING, "center": False, "cost": "constant"}),
    "`sinkhorn`, `weight=30`": ("sinkhorn", {**STRONG, **FALLING, "weight": 30.0}),
    "`sinkhorn`, `schedule=constant`": ("sinkhorn", {**STRONG, **CONSTANT}),
    "`sinkhorn`, `center=false`": ("sinkhorn", {**STRONG, **FALLING, "center": False}),
    "`probe-kd`": ("probe-kd", {}),
    "`sinkhorn+probe`": ("sinkhorn+probe", {**STRONG, **FALLING, "weight": 30.0}),
    "`sinkhorn+probe`, `weight=100`": ("sinkhorn+probe", {**STRONG, **FALLING}),
    "`sinkhorn+probe`, `weight=10 temperature=3`": ("sinkhorn+probe", {**BEFORE, **FALLING}),
    "`sinkhorn+probe`, `weight=10 temperature=3 schedule=constant`": ("sinkhorn+probe", {**BEFORE, **CONSTANT}),
    **{f"`{method}`, patient": (method, {**options, **PATIENT}) for method, options in {
        "none": {}, "sinkhorn": {**STRONG, **FALLING}, "probe-kd": {},
        "sinkhorn+probe": {**STRONG, **FALLING, "weight": 30.0}}.items()},
    **{f"`{method}`, patient, more images without labels": (method, {**options, **MORE}) for method, options in {
        "sinkhorn": {**STRONG, **FALLING}, "probe-kd": {},
        "sinkhorn+probe": {**STRONG, **FALLING, "weight": 30.0}}.items()},
    "`sinkhorn`, patient, `schedule=constant`": ("sinkhorn", {**STRONG, **CONSTANT, **PATIENT}),
    "`sinkhorn`, patient, `epsilon=0.3`": ("sinkhorn", {**STRONG, **FALLING, "epsilon": 0.3, **PATIENT}),
    "`sinkhorn+probe`, patient, `weight=10 temperature=3 schedule=constant`": (
        "sinkhorn+probe", {**BEFORE, **CONSTANT, **PATIENT}),
    "`sinkhorn+probe`, patient, `weight=100 temperature=8 schedule=constant`": (
        "sinkhorn+probe", {**STRONG, **CONSTANT, "temperature": 8.0, **PATIENT}),
    "`probe-kd`, patient, `weight=4 temperature=8`": ("probe-kd", {"weight": 4.0, "temperature": 8.0, **PATIENT}),
    "the teacher's network, fine-tuned": ("finetune", {}),
}  # fmt: skip


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Accuracies of the rows with a word in their names, each row with its evidence."""
    found: dict[str, list[float]] = {name: [] for name in ARMS if args.only in name}
    draws = DRAWS[: 1 if args.quick else None]
    cells = [(draw, 10 * draw + student, tuple(found)) for draw in draws for student in (0, 1)]
    for (_, seed, _), reached in in_processes(one, cells, args):
        print(seed, {name: round(100 * value, 1) for name, value in reached.items()}, flush=True)
        for name, value in reached.items():
            found[name].append(value)
    return {"draws": DRAWS, "teacher": _teacher(args.quick).accuracy, "accuracies": found,
            "evidence": dict.fromkeys(found, evidence())}  # fmt: skip


@functools.cache
def _teacher(quick: bool) -> Result:
    settings = Settings()
    epochs = 1 if quick else settings.teacher_epochs
    return school(Task(settings.teacher_source("letters")), settings.arch, epochs)


def one(cell: tuple[int, int, tuple[str, ...]], quick: bool) -> dict[str, float]:
    """What the students of one draw and seed reach, by the rows' names."""
    draw, seed, names = cell
    settings = replace(Settings(), data_seed=draw)
    task, teacher = Task(settings.target), _teacher(quick)
    more = Task(f"glyphs:digits?per_class=200&test_per_class=1&noise={settings.noise}&seed=77")
    found = {}
    for name in names:
        method, options = ARMS[name][0], dict(ARMS[name][1])
        if "unlabelled" in options:
            options["unlabelled"] = more
        if method == "finetune":
            guide = {"method": "none", "start_from": teacher, "lr": 0.01}
        else:
            guide = {"method": method, **({} if method == "none" else {"teacher": teacher})}
        epochs = options.pop("epochs", 2 if quick else settings.student_epochs)
        length = options.pop("lengthened", 1) * epochs
        found[name] = school(task, settings.arch, length, seed, **guide, **options).accuracy
    return found


def merged(earlier: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """All rows in the order of `ARMS`, those just found in the place of earlier ones, each with its evidence."""
    both = {part: {**earlier[part], **found[part]} for part in ("accuracies", "evidence")}
    return {
        **found,
        **{part: {name: rows[name] for name in ARMS if name in rows} for part, rows in both.items()},
    }


def table(data: dict[str, Any]) -> str:
    """Mean accuracies, and gains over the student alone where that was trained too."""
    found = data["accuracies"]
    lines = ["| method | accuracy, % | gain, points |", "|---|---:|---:|"]
    for name, values in found.items():
        gain = ""
        if name != ALONE and ALONE in found:
            gains = [value - base for value, base in zip(values, found[ALONE], strict=True)]
            gain = f"{100 * mean(gains):+.1f} ± {100 * stdev(gains) / len(gains) ** 0.5:.1f}"
        lines.append(f"| {name} | {100 * mean(values):.1f} | {gain} |")
    lines.append(
        "\nMean of four draws with two students each; ± the standard error of the mean gain over the first row."
    )
    lines.append(
        "`patient`: images mixed up (`mixup=1`) to the end and three times the epochs; with more "
        "images, 200 of each digit by `--unlabelled`, as many steps."
    )
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="a word in the names of the rows to be made")
    args = parser.parse_args()
    if not args.render:
        found = measure(args)
        print(table(found))
        if args.quick:
            return
        write("characters", merged(kept("characters"), found) if args.only else found)
    show("characters", table(kept("characters")), page=ROOT / "docs" / "choosing.md")


if __name__ == "__main__":
    main()
