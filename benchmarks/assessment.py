"""Metrics against what students reached in the end, where labels are few: a zoo of characters.

Thirteen teachers of eleven alphabets, from 10 to 52 classes, of two sizes, one of them hardly trained; five tasks with
20 noisy images a class. The truth is the accuracy of students distilled from each teacher: by `sinkhorn` in a short
training, the mean of two, and by `sinkhorn+probe`, with images mixed for 180 epochs, much as `run` does where labels
are few. Metrics see the 20 images. Writes a table of docs/metrics.md.

    python benchmarks/assessment.py --work FOLDER             # about an hour of two cores
    python benchmarks/assessment.py --work FOLDER --quick     # keeps nothing
    python benchmarks/assessment.py --render                  # the table from the kept numbers

Teachers and the accuracies of students stay in FOLDER; what is there is not made again. Metrics see the first of two
draws.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, kept, show, write_section
from draws import TO_THE_END, arguments, in_processes, school
from experiments.assessments import judges, mean_agreement

from preceptor.data import Task
from preceptor.demo import Settings
from preceptor.distill.train import train
from preceptor.files import write_atomically
from preceptor.zoo import Zoo
from preceptor.zoo.features import extract

SETTINGS = Settings()
TASKS = ("digits", "upper-A-M", "lower-n-z", "hex", "greek")
LARGE, SMALL = "cnn-16", "cnn-8"
WAYS = SHORT, LONG = "sinkhorn", "sinkhorn+probe"  # of distilling; the second with patience
SEEDS = {SHORT: (0, 1), LONG: (0,)}
Cell = tuple[str, str, str | None, int]  # way, task, teacher, seed
TEACHERS: dict[str, tuple[str, str, int]] = {  # alphabets, architecture, epochs
    **{name: (name, LARGE, SETTINGS.teacher_epochs) for name in (
        "digits", "hex", "upper", "lower", "letters", "greek", "upper-A-M", "lower-n-z")},
    "letters-small": ("letters", SMALL, SETTINGS.teacher_epochs),
    "upper-N-Z-small": ("upper-N-Z", SMALL, SETTINGS.teacher_epochs),
    "lower-a-m-small": ("lower-a-m", SMALL, SETTINGS.teacher_epochs),
    "digits-and-greek-small": ("digits+greek", SMALL, SETTINGS.teacher_epochs),
    "letters-one-epoch": ("letters", LARGE, 1),
}  # fmt: skip


def zoo_of(folder: Path, names: list[str]) -> Zoo:
    """The teachers; those of few classes get more images of each, so that all take as many steps."""
    zoo = Zoo(folder / "zoo")
    for name in names:
        if name in zoo.names():
            continue
        alphabets, arch, epochs = TEACHERS[name]
        per_class = max(SETTINGS.teacher_per_class, 2000 // len(Task(f"glyphs:{alphabets}").classes))
        task = Task(
            f"glyphs:{alphabets}?per_class={per_class}&noise={SETTINGS.noise}&seed=1000&test_per_class=20"
        )
        run = folder / "teachers" / name
        result = school(task, arch, epochs, len(name), out=run, resume=True)
        zoo.add(f"run:{run}", name=name)
        print(f"{name}: {len(task.classes)} classes, {result.accuracy:.1%}", flush=True)
    return zoo


def target(name: str, seed: int) -> Task:
    """A task with few images a class."""
    return Task(f"glyphs:{name}?per_class={SETTINGS.per_class}&test_per_class={SETTINGS.test_per_class}"
                f"&noise={SETTINGS.noise}&seed={seed}")  # fmt: skip


def student(cell: Cell, quick: bool) -> float:
    """The accuracy of one student."""
    way, name, teacher, seed = cell
    task = target(name, seed)
    guide = {} if teacher is None else {"method": way, "teacher": teacher}
    if way == SHORT:
        return school(task, SMALL, 1 if quick else SETTINGS.student_epochs, seed, **guide).accuracy
    return train(task, student=SMALL, seed=seed, device="cpu", progress=False, evaluate_every=10**6, **TO_THE_END,
                 **guide).accuracy  # fmt: skip


def truths(cells: list[Cell], args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The accuracies of all students by the names of their cells, those that are kept in the folder included."""
    path = folder / f"students{'-quick' if args.quick else ''}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for cell, accuracy in in_processes(student, [cell for cell in cells if _name(cell) not in known], args):
        known[_name(cell)] = accuracy
        write_atomically(path, json.dumps(known).encode())
        print(f"{_name(cell)}: {accuracy:.1%}", flush=True)
    return known


def _name(cell: Cell) -> str:
    way, task, teacher, seed = cell
    return f"{way}, {task}, {teacher and Path(teacher).name}, {seed}"


def scores_of(zoo: Zoo, name: str, teacher: str) -> dict[str, float]:
    """What the metrics that train no student say."""
    network, task = zoo.load(teacher), target(name, SEEDS[SHORT][0])
    outputs = extract(network, task.train, fingerprint=task.fingerprint, cache=False)
    given = {
        "features": outputs.features, "labels": outputs.labels, "logits": outputs.logits,
        "classifier": network.classifier.numpy(),
    }  # fmt: skip
    return {name: float(metric(**given)) for name, metric in judges().items()}


def table_of(data: dict[str, Any]) -> str:
    """Metrics by their mean correlation with the first truth."""
    metrics = [
        m for m, by_task in data["scores"].items() if all(np.isfinite(v).all() for v in by_task.values())
    ]
    found = {
        (way, metric): mean_agreement((data["scores"][metric][task], values[task]) for task in values)
        for way, values in data["accuracies"].items()
        for metric in metrics
    }
    heads = [f"`{way}`: Pearson | tau | regret" for way in WAYS]
    lines = [f"| metric | {' | '.join(heads)} |", "|---|" + "---:|" * 6]
    for name in sorted(metrics, key=lambda m: -found[SHORT, m]["pearson"]):
        cells = [f"{found[way, name][word]:.2f}" for way in WAYS for word in ("pearson", "tau", "regret")]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    short, long = (
        np.mean([100 * (max(values) - float(np.mean(values))) for values in data["accuracies"][way].values()])
        for way in WAYS
    )
    lines.append(
        f"\n{len(data['teachers'])} teachers of characters, {len(data['accuracies'][SHORT])} tasks with "
        f"{SETTINGS.per_class} images a class, students of each: two distilled by `{SHORT}` in a short training, and "
        f"one by `{LONG}` with images mixed for 180 epochs. Means over the tasks of Pearson's and Kendall's (weighted) "
        "correlation, and the regret of the first place in points; a teacher drawn blindly has "
        f"{short:.1f} and {long:.1f}. `confidence`, minus the entropy of the teacher's predictions, looks at no label: "
        "a reference, not a metric."
    )
    return "\n".join(lines)


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Scores and students of every teacher on every task."""
    names, tasks = [*TEACHERS], [*TASKS]
    if args.quick:
        names, tasks = names[:3], tasks[:1]
    zoo = zoo_of(folder, names)
    found = {task: [scores_of(zoo, task, name) for name in names] for task in tasks}
    urls = [*(f"{zoo.url}/{name}" for name in names), None]
    cells = [cell for way in (LONG, SHORT) for cell in itertools.product([way], tasks, urls, SEEDS[way])]
    known = truths(cells, args, folder)

    def mean(way: str, task: str, url: str | None) -> float:
        return float(np.mean([known[_name((way, task, url, seed))] for seed in SEEDS[way]]))

    return {
        "teachers": names,
        "scores": {m: {task: [row[m] for row in found[task]] for task in tasks} for m in found[tasks[0]][0]},
        "accuracies": {w: {t: [mean(w, t, url) for url in urls[:-1]] for t in tasks} for w in WAYS},
        "alone": {w: {t: mean(w, t, None) for t in tasks} for w in WAYS},
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--work", type=Path, help="folder for teachers; one that is thrown away by default")
    args = parser.parse_args()
    page = ROOT / "docs" / "metrics.md"
    if args.render:
        show("assessment", table_of(kept("assessment")), page=page)
        return
    with tempfile.TemporaryDirectory() as passing:
        folder = args.work or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        data = measure(folder, args)
    print(table_of(data))
    write_section("assessment", table_of(data), data, quick=args.quick, page=page)


if __name__ == "__main__":
    main()
