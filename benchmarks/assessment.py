"""Metrics against what students reached in the end, where labels are few: a zoo of characters.

Thirteen teachers of eleven alphabets, from 10 to 52 classes, of two sizes, one of them hardly trained; five tasks with
20 noisy images a class. The truth is the accuracy of students distilled from each teacher by `sinkhorn` as it is by
default, the mean of two; metrics see the 20 images. Writes a table of docs/metrics.md.

    python benchmarks/assessment.py --work FOLDER             # about half an hour of one core
    python benchmarks/assessment.py --work FOLDER --quick     # keeps nothing
    python benchmarks/assessment.py --render                  # the table from the kept numbers

Teachers and the accuracies of students stay in FOLDER; what is there is not made again. Metrics see the first of two
draws.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, kept, show, write_section
from draws import school
from experiments.assessments import judges, mean_agreement

from preceptor.data import Task
from preceptor.demo import Settings
from preceptor.files import write_atomically
from preceptor.zoo import Zoo
from preceptor.zoo.features import extract

SETTINGS = Settings()
TASKS = ("digits", "upper-A-M", "lower-n-z", "hex", "greek")
SEEDS = (0, 1)
LARGE, SMALL = "cnn-16", "cnn-8"
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


def truth(zoo: Zoo, name: str, teacher: str | None, seed: int, epochs: int, folder: Path) -> float:
    """The accuracy of one student."""
    path = folder / "students.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    key = f"{name}, {teacher}, {seed}, {epochs}"
    if key not in known:
        guide = {} if teacher is None else {"method": "sinkhorn", "teacher": f"{zoo.url}/{teacher}"}
        known[key] = school(target(name, seed), SMALL, epochs, seed, **guide).accuracy
        write_atomically(path, json.dumps(known).encode())
        print(f"{key}: {known[key]:.1%}", flush=True)
    return known[key]


def scores_of(zoo: Zoo, name: str, teacher: str) -> dict[str, float]:
    """What the metrics that train no student say."""
    network, task = zoo.load(teacher), target(name, SEEDS[0])
    outputs = extract(network, task.train, fingerprint=task.fingerprint, cache=False)
    given = {
        "features": outputs.features, "labels": outputs.labels, "logits": outputs.logits,
        "classifier": network.classifier.numpy(),
    }  # fmt: skip
    return {name: float(metric(**given)) for name, metric in judges().items()}


def table_of(data: dict[str, Any]) -> str:
    """Metrics by their mean correlation."""
    truth = data["accuracies"]
    found = {
        metric: mean_agreement((scores[task], truth[task]) for task in truth)
        for metric, scores in data["scores"].items()
        if all(np.isfinite(scores[task]).all() for task in truth)
    }
    words = ("Pearson", "Spearman", "tau", "regret")
    lines = ["| metric | " + " | ".join(words) + " |", "|---|" + "---:|" * len(words)]
    for name in sorted(found, key=lambda m: -found[m]["pearson"]):
        lines.append(
            f"| `{name}` | " + " | ".join(f"{found[name][word.lower()]:.2f}" for word in words) + " |"
        )
    blind = np.mean([100 * (max(a) - float(np.mean(a))) for a in data["accuracies"].values()])
    lines.append(
        f"\n{len(data['teachers'])} teachers of characters, {len(data['accuracies'])} tasks with "
        f"{SETTINGS.per_class} images a class, two students for each pair, distilled by `sinkhorn`. Means over the "
        "tasks of Pearson's, Spearman's and Kendall's (weighted) correlation, and the regret of the first place "
        f"in points; a teacher drawn blindly has {blind:.1f}. `confidence`, minus the entropy of the teacher's "
        "predictions, looks at no label: a reference, not a metric."
    )
    return "\n".join(lines)


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Scores and students of every teacher on every task."""
    names, tasks, seeds = [*TEACHERS], [*TASKS], SEEDS
    if quick:
        names, tasks, seeds = names[:3], tasks[:1], SEEDS[:1]
    epochs = 1 if quick else SETTINGS.student_epochs
    zoo = zoo_of(folder, names)
    found = {task: [scores_of(zoo, task, name) for name in names] for task in tasks}
    accuracies = {
        task: [float(np.mean([truth(zoo, task, n, s, epochs, folder) for s in seeds])) for n in names]
        for task in tasks
    }
    alone = {
        task: float(np.mean([truth(zoo, task, None, s, epochs, folder) for s in seeds])) for task in tasks
    }
    scores = {m: {task: [row[m] for row in found[task]] for task in tasks} for m in found[tasks[0]][0]}
    return {"teachers": names, "scores": scores, "accuracies": accuracies, "alone": alone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for teachers; one that is thrown away by default")
    parser.add_argument(
        "--quick", action="store_true", help="three teachers, one task, one epoch; keeps nothing"
    )
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    args = parser.parse_args()
    page = ROOT / "docs" / "metrics.md"
    if args.render:
        show("assessment", table_of(kept("assessment")), page=page)
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as passing:
        folder = args.work or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        data = measure(folder, args.quick)
    print(table_of(data))
    write_section("assessment", table_of(data), data, quick=args.quick, page=page)


if __name__ == "__main__":
    main()
