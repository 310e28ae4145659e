"""Fig. 7 with Tab. 11: the double sliding window, metrics against what students reached in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from safetensors.torch import load_file

from experiments import results
from experiments.book import COLOURS, NOT_RUN, Book, plain_axes, save_figure, table
from experiments.items.fig07_paper import PEARSON
from experiments.jobs import Job, Scale, TeacherSpec, distillation
from experiments.lab import Lab
from experiments.runner import done
from preceptor.metrics import METRICS, needs
from preceptor.metrics.quality import pearson, spearman, weighted_kendall

NAME, TITLE = "fig07", "Fig. 7 and Tab. 11: assessment of teachers"
ARCHS = {"cifar100": ("wrn-40-2", "resnet-18"), "cub200": ("mobilenet-1.0", "resnet-18")}
STUDENTS = {"cifar100": "wrn-16-1", "cub200": "mobilenet-0.25"}
TIERS = {"cifar100": 20, "cub200": 22}
SAMPLES = {"cifar100": 50, "cub200": 30}  # images a class in the compact file
SCORES = "fig07-scores"


def teachers(scale: Scale, data: str) -> list[TeacherSpec]:
    """All of them: the first architecture's by task, then the second's, as the paper counts them."""
    return [scale.teacher(data, arch, task) for arch in ARCHS[data] for task in scale.tasks(data)]


def jobs(scale: Scale) -> list[Job]:
    """A student of each teacher on each task, and one without; one seed."""
    return [job for data in ARCHS for task in scale.tasks(data) for job in setting(scale, data, task)]


def setting(scale: Scale, data: str, task: int) -> list[Job]:
    """The students of one task, in the order of their teachers, the one without last."""
    rest = {"tier": TIERS[data], "keep": True}
    specs = teachers(scale, data)
    found = [
        distillation(scale, NAME, data, STUDENTS[data], "sinkhorn", spec, task, 0, **rest) for spec in specs
    ]
    return [*found, distillation(scale, NAME, data, STUDENTS[data], "none", ARCHS[data][0], task, 0, **rest)]


# The compact file


def compact_path(lab: Lab, data: str) -> Path:
    """Where the teachers' outputs on a sample of the training images, and the ground truth, are kept."""
    return lab.work / f"fig07-{data}.npz"


def measure(lab: Lab) -> None:
    """Write the compact file once all students are there; then score every teacher on every task from it."""
    for data in ARCHS:
        some = [job for job in jobs(lab.scale) if job.data == data]
        if not compact_path(lab, data).exists():
            rows = done(lab, some)
            if len(rows) < len(some):
                print(f"fig07 {data}: {len(some) - len(rows)} students are missing, nothing to collect yet")
                continue
            collect(lab, data, {job: row["accuracy"] for job, row in rows.items()})
        score(lab, data)


def collect(lab: Lab, data: str, accuracy: dict[Job, float]) -> None:
    """Features and logits of all teachers over a few images a class, in half precision; accuracies of students."""
    source = lab.source(data)
    sample = source.train.per_class(SAMPLES[data], seed=0)
    specs = teachers(lab.scale, data)
    held: dict[str, Any] = {"labels": sample.labels.cpu().numpy().astype(np.int16)}
    for place, spec in enumerate(specs):
        outputs = lab.outputs(lab.teacher(spec), data, sample)
        held[f"teacher{place}_features"] = outputs.features.astype(np.float16)
        held[f"teacher{place}_logits"] = outputs.logits.astype(np.float16)
        held[f"teacher{place}_classifier"] = (
            lab.teacher(spec).classifier.weight.detach().float().cpu().numpy()
        )
        held[f"teacher{place}_centers"] = lab.centers(spec).numpy()
    tasks = lab.scale.tasks(data)
    truth = np.array(
        [[accuracy[job] for job in setting(lab.scale, data, task)] for task in tasks], dtype=np.float64
    )
    held["accuracy"] = truth  # (tasks, teachers + 1), the student without a teacher last
    own = sample.of_classes(source.kind.chosen(tasks[0]))
    for place, job in enumerate(setting(lab.scale, data, tasks[0])):
        if not lab.student_path(job).exists():
            continue
        network = lab.network(job.student, len(source.kind.chosen(job.task)), data, None)
        network.load_state_dict(load_file(lab.student_path(job), device=lab.device))
        outputs = lab.outputs(network, data, own)
        held[f"student{place}_logits"] = outputs.logits.astype(np.float16)
        held[f"student{place}_features"] = outputs.features.astype(np.float16)
    story = {"data": data, "teachers": [[s.arch, s.task] for s in specs], "tasks": tasks,
             "chosen": {t: source.kind.chosen(t) for t in tasks}, "classes": source.classes,
             "evidence": results.evidence()}  # fmt: skip
    held["story"] = np.array(json.dumps(story))
    path = compact_path(lab, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **held)
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


def on_task(held: Any, place: int, chosen: list[int]) -> dict[str, np.ndarray]:
    """What a metric takes, of one teacher on one task: labels counted from 0 in the task's order."""
    rows = np.concatenate([np.flatnonzero(held["labels"] == c) for c in chosen])
    places = {c: k for k, c in enumerate(chosen)}
    return {
        "features": held[f"teacher{place}_features"][rows].astype(np.float32),
        "logits": held[f"teacher{place}_logits"][rows].astype(np.float32),
        "labels": np.array([places[c] for c in held["labels"][rows]]),
        "classifier": held[f"teacher{place}_classifier"],
    }


def score(lab: Lab, data: str) -> None:
    """One row for each teacher and task with the scores of all metrics that need no trained student."""
    path = lab.results / f"{SCORES}.jsonl"
    held = np.load(compact_path(lab, data))
    story = json.loads(str(held["story"]))
    there = {(r["data"], r["task"], r["teacher"], r["teacher_task"]) for r in results.read(path)}
    for line, task in enumerate(story["tasks"]):
        found = []
        for place, (arch, teacher_task) in enumerate(story["teachers"]):
            if (data, task, arch, teacher_task) in there:
                continue
            given = on_task(held, place, story["chosen"][str(task)])
            scores = {name: float(metric(**given)) for name, metric in METRICS.items()
                      if "student_logits" not in needs(name)}  # fmt: skip
            found.append({
                "data": data, "task": task, "teacher": arch, "teacher_task": teacher_task, "scores": scores,
                "accuracy": float(held["accuracy"][line, place]), "alone": float(held["accuracy"][line, -1]),
                "samples": len(given["labels"]), "seed": 0,
            })  # fmt: skip
        if found:
            results.append(path, found)


# The page


def quality(rows: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Pearson of each task, and means over tasks of Pearson, Spearman, weighted tau and regret in points."""
    found: dict[str, Any] = {"pearson": {}, "spearman": {}, "tau": {}, "regret": {}}
    for task in sorted({row["task"] for row in rows}):
        some = [row for row in rows if row["task"] == task and metric in row["scores"]]
        scores, accuracies = [r["scores"][metric] for r in some], [r["accuracy"] for r in some]
        if len(some) < 3 or not np.isfinite(scores).all():
            continue
        found["pearson"][task] = pearson(scores, accuracies)
        found["spearman"][task] = spearman(scores, accuracies)
        found["tau"][task] = weighted_kendall(scores, accuracies)
        found["regret"][task] = 100 * (max(accuracies) - accuracies[int(np.argmax(scores))])
    means = {name: float(np.mean(list(values.values()))) for name, values in found.items() if values}
    return {"tasks": found["pearson"], **means}


def section(book: Book, folder: Path) -> str:
    """Tab. 11 with more metrics and measures, and the figure, for each data set."""
    paper = [[name, *(f"{value:.2f}" for value in values)] for name, values in PEARSON.items()]
    parts = ["The paper, on CUB: Pearson correlation between metrics and the accuracy of distilled students.",
             table(["paper", "task 1", "2", "3", "4", "5", "mean"], paper)]  # fmt: skip
    for data in ARCHS:
        rows = [row for row in book.rows(SCORES, data=data)]
        if not rows:
            parts.append(f"{data}: *{NOT_RUN}*")
            continue
        tasks = sorted({row["task"] for row in rows})
        found = {name: quality(rows, name) for name in rows[0]["scores"]}
        ranked = sorted(found, key=lambda name: -found[name].get("pearson", -2))
        lines = [[name, *(f"{found[name]['tasks'].get(task, float('nan')):.2f}" for task in tasks),
                  *(f"{found[name].get(key, float('nan')):.2f}" for key in ("pearson", "spearman", "tau", "regret"))]
                 for name in ranked]  # fmt: skip
        parts.append(
            f"Ours, {data}: {len({(r['teacher'], r['teacher_task']) for r in rows})} teachers, students "
            f"{STUDENTS[data]} distilled with `sinkhorn`, one seed; metrics see {rows[0]['samples']} training images. "
            "Pearson for each task; means of Pearson, Spearman and weighted Kendall; mean top-1 regret in points."
        )
        parts.append(
            table([data, *(f"task {t + 1}" for t in tasks), "Pearson", "Spearman", "tau", "regret"], lines)
        )
        parts.append(_draw(rows, tasks, data, folder))
    return "\n\n".join(parts)


def _draw(rows: list[dict[str, Any]], tasks: list[int], data: str, folder: Path) -> str:
    names = ("nce", "leep", "logme", "sinkhorn")
    figure, axes = plt.subplots(len(names), len(tasks), figsize=(1.9 * len(tasks), 6.5), squeeze=False)
    archs = list(dict.fromkeys(row["teacher"] for row in rows))
    for line, name in zip(axes, names, strict=True):
        for axis, task in zip(line, tasks, strict=True):
            some = [row for row in rows if row["task"] == task]
            values = np.array([row["scores"][name] for row in some])
            values = (values - values.min()) / max(np.ptp(values), 1e-12)
            for row, value in zip(some, values, strict=True):
                axis.scatter(100 * row["accuracy"], value, s=22, color=COLOURS[row["teacher_task"] % len(COLOURS)],
                             marker="*^"[archs.index(row["teacher"]) % 2])  # fmt: skip
            first = task == tasks[0]
            plain_axes(axis, "student accuracy, %" if name == names[-1] else "", name if first else "")
            axis.tick_params(labelsize=7)
            if name == names[0]:
                axis.set_title(f"task {task + 1}", fontsize=9)
    return save_figure(figure, folder, f"fig07-{data}") + (
        f"\n\nStars: {archs[0]}; triangles: {archs[-1]}; colours: the teacher's task. Metrics are scaled to 0…1."
    )
