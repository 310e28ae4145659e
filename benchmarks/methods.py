"""What each method gains where labels are few: handwritten digits, several seeds, the plain student beside.

Two settings, ten seeds each. "Other classes": the teacher knows the digits 3 to 9, the student learns 0 to 4 from four
images a class. "Same classes": both have 0 to 4, and only the teacher had all images. Teacher cnn-16, student cnn-4,
300 steps for everybody. Rounding alone, such as costs that differ by 1e-7, moves such a student by one to two points,
so fewer seeds say little. Writes the table of docs/methods.md.

    python benchmarks/methods.py [--quick]
    python benchmarks/methods.py --methods sinkhorn kd     # these anew, the others as they were
    python benchmarks/methods.py --patient                 # a second table: the recipe of that name, 1,500 steps
    python benchmarks/methods.py --mixed                   # a third: mixed up in the first half of 300 steps
    python benchmarks/methods.py [--patient | --mixed] --render    # the table from the kept numbers
"""

from __future__ import annotations

import argparse
import logging
import warnings
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from common import ROOT, evidence, kept, show, write
from sklearn.datasets import load_digits

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.distill.losses import METHODS
from preceptor.distill.schedules import SCHEDULES, distill
from preceptor.distill.train import train

STAGES = {
    "refilled-embedding",
    "refilled-classifier",
    "sftn-teacher",
}  # run by the schedules of their methods
NAMES = tuple("0123456789")
MINE = NAMES[:5]
SETTINGS = {"other classes": NAMES[3:], "same classes": MINE}  # what the teacher knows
TEACHER_EPOCHS = 30
SOME = ("kd", "probe-kd", "refilled", "rkd", "sinkhorn", "sinkhorn+probe")  # with the recipes of mixed images
PER_CLASS = 4  # with ten, the plain student is above 90 % and there is little left to gain


def digits() -> Task:
    """scikit-learn's 1,797 digits of 8 x 8 px, every third one for testing."""
    images, labels = load_digits(return_X_y=True)
    pixels = (images.reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    test = np.arange(len(labels)) % 3 == 0
    return Task.from_arrays(pixels[~test], labels[~test], pixels[test], labels[test], NAMES, name="digits")


def accuracy(
    method: str, task: Task, teacher: object, seed: int, length: dict[str, int], recipe: str
) -> float:
    options = {
        "recipe": recipe,
        "batch_size": 20,
        "seed": seed,
        "progress": False,
        "device": "cpu",
        "evaluate_every": 10**6,
        **length,
    }
    if method == "none":
        return train(task, student="cnn-4", **options).accuracy
    return distill("cnn-4", task, teacher, method, **options).accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, three epochs; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--methods", nargs="*")
    recipes = parser.add_mutually_exclusive_group()
    for recipe in ("patient", "mixed"):
        recipes.add_argument(
            f"--{recipe}", action="store_true", help="the recipe of that name, for some of the methods"
        )
    args = parser.parse_args()
    recipe = recipe_of(args)
    name, marker = ("methods", "measured") if recipe == "small" else (f"methods_{recipe}", recipe)
    if not args.render:
        logging.getLogger("preceptor").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        found = measure(args)
        if args.quick:
            print(table(found))
            return
        write(name, merged(kept(name), found) if args.methods else found)
    show(name, table(kept(name)), page=ROOT / "docs" / "methods.md", marker=marker)


def recipe_of(args: argparse.Namespace) -> str:
    """By which everybody trains."""
    return "patient" if args.patient else "mixed" if args.mixed else "small"


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Accuracies of the chosen methods and of the plain student, each row with its evidence."""
    seeds = 1 if args.quick else args.seeds
    length = {"epochs": 3} if args.quick else {} if args.patient else {"epochs": args.epochs}
    recipe = recipe_of(args)
    some = SOME if recipe != "small" else sorted((set(METHODS) | set(SCHEDULES)) - STAGES - {"none"})
    everything = digits()
    found: dict[str, dict[str, list[float] | str]] = {}
    for setting, known in SETTINGS.items():
        schooling = 2 if args.quick else TEACHER_EPOCHS
        teacher = train(
            everything.subset(known), student="cnn-16", recipe="small", epochs=schooling, progress=False,
            device="cpu", evaluate_every=schooling,
        )  # fmt: skip
        for method in ["none", *(args.methods or some)]:
            cell: list[float] | str = []
            for seed in range(seeds):
                task = everything.subset(MINE).per_class(PER_CLASS, seed)
                try:
                    cell.append(accuracy(method, task, teacher, seed, length, recipe))
                except PreceptorError as error:
                    cell = str(error)
                    break
            found.setdefault(method, {})[setting] = cell
            print(
                setting,
                method,
                cell if isinstance(cell, str) else [round(100 * v, 1) for v in cell],
                flush=True,
            )
    proof = evidence()
    return {"seeds": seeds, **length, "results": found, "evidence": dict.fromkeys(found, proof)}


def merged(earlier: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """All rows, those just found in the place of earlier ones, each with its evidence."""
    lengths = [[data.get(name) for name in ("seeds", "epochs")] for data in (earlier, found)]
    if lengths[0] != lengths[1]:
        raise SystemExit(
            f"the kept rows are of {lengths[0]} seeds and epochs, these of {lengths[1]}: run all methods anew"
        )
    return {**found, **{part: {**earlier[part], **found[part]} for part in ("results", "evidence")}}


def table(data: dict[str, Any]) -> str:
    """Accuracies, and gains over the plain student."""
    found = data["results"]
    lines = ["| method | " + " | ".join(SETTINGS) + " |", "|---|" + "---|" * len(SETTINGS)]
    for method, cells in found.items():
        shown = " | ".join(_cell(cells[setting], found["none"][setting]) for setting in SETTINGS)
        lines.append(f"| `{method}` | {shown} |")
    lines.append(
        "\nTest accuracy in percent, mean ± standard deviation over the seeds, and the mean gain over the plain"
    )
    lines.append("student of the same seed ± its standard error; – where the method refuses other classes.")
    return "\n".join(lines)


def _cell(values: list[float] | str, plain: list[float] | str) -> str:
    if isinstance(values, str) or isinstance(plain, str):
        return "–"
    gains = [value - base for value, base in zip(values, plain, strict=True)]
    spread = stdev(values) if len(values) > 1 else 0.0
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    gain = f" ({100 * mean(gains):+.1f} ± {100 * error:.1f})" if any(gains) else ""
    return f"{100 * mean(values):.1f} ± {100 * spread:.1f}{gain}"


if __name__ == "__main__":
    main()
