"""Fig. 7 with Tab. 11: the double sliding window, metrics against what students reached in the end.

With all images, as in the paper, students of different teachers differ by little more than those of different seeds do.
So there is a second ground truth: students of few images a class, where teachers matter. And since no user asks
a teacher about images that it has learnt from, there is a third, of few images that are new to the teachers: these have
one half of CIFAR-100's training images, students and metrics the other.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from safetensors.torch import load_file

from experiments import results
from experiments.assessments import KEY, judges, key_of, merged, quality, within
from experiments.book import COLOURS, NOT_RUN, Book, Sample, plain_axes, save_figure, table
from experiments.items import fig05, fig07_repeats
from experiments.items.fig07_paper import PEARSON
from experiments.jobs import Job, Scale, TeacherSpec, distillation
from experiments.lab import Lab
from experiments.runner import done
from preceptor.files import write_atomically

NAME, TITLE = "fig07", "Fig. 7 and Tab. 11: assessment of teachers"
NEW = "cifar100-second"  # the images of students whose teachers have learnt from others
TAUGHT_BY = {NEW: "cifar100-first"}  # where the teachers' data is not that of the students
ARCHS = {
    "cifar100": ("wrn-40-2", "resnet-18"),
    NEW: ("wrn-40-2", "resnet-18"),
    "cub200": ("mobilenet-1.0", "resnet-18"),
}
# Where the teachers have seen the students' images, as in the paper.
OWN = tuple(data for data in ARCHS if data not in TAUGHT_BY)
STUDENTS = {"cifar100": "wrn-16-1", NEW: "wrn-16-1", "cub200": "mobilenet-0.25"}
TIERS = {"cifar100": 20, NEW: 20, "cub200": 22}
# Labelled images a class of the second ground truth, the mean of so many seeds; of new images there is no other.
FEW, FEW_SEEDS = {"cifar100": 25, NEW: 25}, 2
# Images a class in the compact file, which should have tens of MB.
SAMPLES = {"cifar100": 50, NEW: 50, "cub200": 20}
SCORES = "fig07-scores"
SHOWN = ("leep", "logme", "sinkhorn", "bridge")
FINDINGS = (
    "On CIFAR-100 the paper's metric does badly across architectures: class centres lie further apart in the wider "
    "embedding, so its values stand on different levels, and its entropy rewards flat predictions. Among teachers of "
    "one architecture it does better, if not as well as the others. On CUB it is level with them, but there students "
    "that are trained once more agree with themselves no better than with a metric: one training of each student, as "
    "in the paper, cannot tell the metrics of the upper half apart. `bridge` was made after a look at CIFAR-100's rows "
    "(the transport of the method with the student's side left free, held against the labels; epsilon and temperature "
    "as in the paper). That it is level with LEEP and NCE there, a few thousandths above, proves little, and the "
    "teacher's mere confidence does as well on these windows, perhaps because it has learnt from the very images of "
    "the classes that it shares with a task. Tests that `bridge` had no part in are CUB below, where it is among the "
    "first, and the zoo of characters in [metrics.md](metrics.md#bridge)."
)


def teachers(scale: Scale, data: str) -> list[TeacherSpec]:
    """All of them: the first architecture's by task, then the second's, as the paper counts them."""
    own = TAUGHT_BY.get(data, data)
    return [scale.teacher(own, arch, task) for arch in ARCHS[data] for task in scale.tasks(data)]


def truths(scale: Scale, data: str) -> dict[int | None, list[int]]:
    """The ground truths of a data set: labelled images a class, None for all, and their seeds."""
    few = {} if data not in FEW else {scale.count(data, FEW[data]): list(scale.seeds[:FEW_SEEDS])}
    return {**few, None: [0]} if data in OWN else few


def jobs(scale: Scale) -> list[Job]:
    """A student of each teacher on each task, and one without, for each ground truth."""
    return [job for data in ARCHS for per_class in truths(scale, data)
            for some in settings(scale, data, per_class) for job in some]  # fmt: skip


def settings(scale: Scale, data: str, per_class: int | None) -> list[list[Job]]:
    """The students of each task and seed of a ground truth."""
    return [setting(scale, data, task, per_class, seed)
            for seed in truths(scale, data)[per_class] for task in scale.tasks(data)]  # fmt: skip


def setting(scale: Scale, data: str, task: int, per_class: int | None = None, seed: int = 0) -> list[Job]:
    """The students of one task, in the order of their teachers, the one without last."""
    tier = TIERS[data] - (per_class is not None)
    rest = {"tier": tier, "keep": per_class is None, "per_class": per_class}
    specs = teachers(scale, data)
    pairs = [*(("sinkhorn", spec) for spec in specs), ("none", specs[0])]
    return [distillation(scale, NAME, data, STUDENTS[data], method, spec, task, seed, **rest)
            for method, spec in pairs]  # fmt: skip


# The compact file


def compact_path(lab: Lab, data: str) -> Path:
    """Where the teachers' outputs on a sample of the training images, and the ground truth, are kept."""
    return lab.work / f"fig07-{data}.npz"


def compact_files(lab: Lab, name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Data, arrays and story of each compact file of which an experiment has no rows yet."""
    there = {row["data"] for row in results.read(lab.results / f"{name}.jsonl")}
    for data in OWN:
        if data not in there and compact_path(lab, data).exists():
            held = np.load(compact_path(lab, data))
            yield data, held, json.loads(str(held["story"]))


def measure(lab: Lab) -> None:
    """Write the compact file once the teachers are there, a ground truth once its students are, then score."""
    for data in ARCHS:
        path = compact_path(lab, data)
        if not path.exists():
            if missing := lab.missing(teachers(lab.scale, data)):
                print(f"fig07 {data}: {len(missing)} teachers are missing, nothing to collect yet")
                continue
            _write(path, teachers_outputs(lab, data))
        for per_class in truths(lab.scale, data):
            known = truth(lab, data, per_class)
            if known is None:
                continue
            held = {**np.load(path)}
            if accuracy_key(per_class) not in held:
                held[accuracy_key(per_class)] = known
                _write(path, held | (students_outputs(lab, data) if per_class is None else {}))
            score(lab, data, per_class)


def _write(path: Path, held: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    np.savez_compressed(file, **held)
    write_atomically(path, file.getvalue())
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


def accuracy_key(per_class: int | None) -> str:
    """What the compact file calls a ground truth."""
    return "accuracy" if per_class is None else f"accuracy_{per_class}"


def truth(lab: Lab, data: str, per_class: int | None) -> np.ndarray | None:
    """(tasks, teachers + 1), the student without a teacher last: means over seeds; None while some are missing."""
    found = settings(lab.scale, data, per_class)
    some = [job for line in found for job in line]
    rows = done(lab, some)
    if len(rows) < len(some):
        few = "" if per_class is None else f", {per_class} images a class"
        print(f"fig07 {data}{few}: {len(some) - len(rows)} students are missing, nothing to collect yet")
        return None
    accuracy = np.array([[rows[job]["accuracy"] for job in line] for line in found], dtype=np.float64)
    return accuracy.reshape(-1, len(lab.scale.tasks(data)), accuracy.shape[1]).mean(0)


def teachers_outputs(lab: Lab, data: str) -> dict[str, Any]:
    """Features and logits of all teachers over a few images a class, in half precision."""
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
    story = {"data": data, "teachers": [[s.arch, s.task, s.epochs] for s in specs], "tasks": tasks,
             "weights": [lab.weights_of(spec) for spec in specs],
             "chosen": {t: source.kind.chosen(t) for t in tasks}, "classes": source.classes,
             "evidence": results.evidence()}  # fmt: skip
    return {**held, "story": np.array(json.dumps(story))}


def students_outputs(lab: Lab, data: str) -> dict[str, Any]:
    """The same of the students of the first task, where their weights are at hand."""
    source, tasks = lab.source(data), lab.scale.tasks(data)
    own = source.train.per_class(SAMPLES[data], seed=0).of_classes(source.kind.chosen(tasks[0]))
    held: dict[str, Any] = {}
    for place, job in enumerate(setting(lab.scale, data, tasks[0])):
        if not lab.student_path(job).exists():
            continue
        network = lab.network(job.student, len(source.kind.chosen(job.task)), data, None)
        network.load_state_dict(load_file(lab.student_path(job), device=lab.device))
        outputs = lab.outputs(network, data, own)
        held[f"student{place}_logits"] = outputs.logits.astype(np.float16)
        held[f"student{place}_features"] = outputs.features.astype(np.float16)
    return held


def on_task(held: Any, place: int, chosen: list[int], per_class: int | None = None) -> dict[str, np.ndarray]:
    """What a metric takes, of one teacher on one task: labels counted from 0 in the task's order."""
    rows = np.concatenate([np.flatnonzero(held["labels"] == c)[:per_class] for c in chosen])
    places = {c: k for k, c in enumerate(chosen)}
    return {
        "features": held[f"teacher{place}_features"][rows].astype(np.float32),
        "logits": held[f"teacher{place}_logits"][rows].astype(np.float32),
        "labels": np.array([places[c] for c in held["labels"][rows]]),
        "classifier": held[f"teacher{place}_classifier"],
    }


def score(lab: Lab, data: str, per_class: int | None) -> None:
    """One row for each teacher and task with the scores of all metrics that need no trained student.

    Where students had few images a class, metrics see as many. A metric that is newer than the rows gets rows of its
    own, which `merged` brings together.
    """
    path = lab.results / f"{SCORES}.jsonl"
    held = np.load(compact_path(lab, data))
    story = json.loads(str(held["story"]))
    weights = story.get("weights") or [None] * len(story["teachers"])
    there = {(*key_of(row), row.get("teacher_weights")): row["scores"] for row in merged(results.read(path))}
    metrics = judges()
    truth = held[accuracy_key(per_class)]
    for line, task in enumerate(story["tasks"]):
        found = []
        for place, (arch, teacher_task, epochs) in enumerate(story["teachers"]):
            key = (data, per_class, task, arch, teacher_task, epochs)
            missing = [name for name in metrics if name not in there.get((*key, weights[place]), ())]
            if not missing:
                continue
            given = on_task(held, place, story["chosen"][str(task)], per_class)
            found.append({
                **dict(zip(KEY, key, strict=True)),
                "scores": {name: float(metrics[name](**given)) for name in missing},
                "accuracy": float(truth[line, place]), "alone": float(truth[line, -1]),
                "samples": len(given["labels"]), "seed": 0, "teacher_weights": weights[place],
            })  # fmt: skip
        if found:
            results.append(path, found)


# The page


def section(book: Book, folder: Path) -> str:
    """Tab. 11 with more metrics and measures, and the figure, for each data set."""
    paper = [[name, *(f"{value:.2f}" for value in values)] for name, values in PEARSON.items()]
    parts = ["The paper, on CUB: Pearson correlation between metrics and the accuracy of distilled students.",
             table(["paper", "task 1", "2", "3", "4", "5", "mean"], paper), FINDINGS]  # fmt: skip
    for data in ARCHS:
        for per_class in truths(book.scale_of(NAME), data):
            rows = merged(book.rows(SCORES, data=data, per_class=per_class))
            lines = settings(book.scale_of(NAME, data=data, per_class=per_class), data, per_class)
            parts += [_part(rows, data, per_class, folder), fig07_repeats.section(book, lines, rows, SHOWN),
                      _gains(book, data, per_class)]  # fmt: skip
    return "\n\n".join(filter(None, parts))


def _gains(book: Book, data: str, per_class: int | None) -> str:
    """What the teachers were worth, by the classes that they share with the task."""
    scale = book.scale_of(NAME, data=data, per_class=per_class)
    kind, pairs, tasks = scale.kind(data), {}, set()
    for line in settings(scale, data, per_class):
        *taught, alone = line
        for job in taught:
            key = job.teacher.arch, round(kind.overlap(job.teacher.task, job.task), 6)
            found = [taught["accuracy"] - base["accuracy"]
                     for taught, base in zip(book.trainings(job), book.trainings(alone), strict=False)
                     if None not in (taught["accuracy"], base["accuracy"])]  # fmt: skip
            pairs.setdefault(key, []).extend(found)
            tasks |= {job.task} if found else set()
    gains = {key: Sample(tuple(found)) for key, found in pairs.items()}
    if not any(gain.values for gain in gains.values()):
        return ""
    archs, shares = dict.fromkeys(a for a, _ in gains), sorted({share for _, share in gains}, reverse=True)
    values = [v for gain in gains.values() for v in gain.values]
    text = (
        f"What they are worth, {_images(data, per_class)}: points that a student gained over the one alone, mean ± "
        "standard deviation over teachers, tasks, seeds and trainings (how many), by the share of the task's classes "
        f"that the teacher knows; {len(tasks)} of {kind.tasks} tasks were run. Students of a task, seed and training "
        "are held against the same one alone, and with few classes in common only the outer tasks are left, so columns "
        f"differ in tasks as well. {sum(v > 0 for v in values)} of {len(values)} students gained, "
        f"{100 * np.mean(values):.1f} points in the mean.{reached(book, data, scale.teacher_epochs)}"
    )
    lines = [[arch, *(gains[arch, share].shown(signed=True, digits=1) for share in shares)] for arch in archs]
    if per_class is None:
        lines.insert(
            0, [f"the paper's Fig. 5, {fig05.TEACHERS[data]}", *(_said(data, share) for share in shares)]
        )
    return text + "\n\n" + table(["teacher", *(f"{share:.0%}" for share in shares)], lines)


def reached(book: Book, data: str, epochs: int) -> str:
    """How good the teachers are at what they were trained on."""
    own = book.rows("teachers", data=TAUGHT_BY.get(data, data), epochs=epochs)
    rows = [row for row in own if row["arch"] in ARCHS[data]]
    found = [100 * row["accuracy"] for row in rows]
    return (
        f" The teachers reach {min(found):.0f} to {max(found):.0f} % on their own test images."
        if found
        else ""
    )


def _said(data: str, share: float) -> str:
    """The paper's gain of the same student from its first teacher."""
    ours, alone = (fig05.said(data, STUDENTS[data], share, method) for method in ("sinkhorn", "none"))
    return "–" if ours is None or alone is None else f"{ours - alone:+.1f}"


def _images(data: str, per_class: int | None) -> str:
    named = "cifar100, images new to the teachers" if data == NEW else data
    return f"{named}, " + ("all images" if per_class is None else f"{per_class} images a class")


def _part(rows: list[dict[str, Any]], data: str, per_class: int | None, folder: Path) -> str:
    """The table and the figure of one ground truth."""
    images = _images(data, per_class)
    if not rows:
        return f"{images}, metrics: *{NOT_RUN}*"
    tasks = sorted({row["task"] for row in rows})
    found = {name: quality(rows, name) for name in rows[0]["scores"]}
    ranked = sorted(found, key=lambda name: -found[name].get("pearson", -2))
    lines = [[name, *(f"{found[name]['tasks'].get(task, float('nan')):.2f}" for task in tasks),
              *(f"{found[name].get(key, float('nan')):.2f}" for key in ("pearson", "spearman", "tau", "regret"))]
             for name in ranked]  # fmt: skip
    seeds = "one seed" if per_class is None else f"the mean of {FEW_SEEDS} seeds"
    text = (
        f"Ours, {images}: {len({(r['teacher'], r['teacher_task']) for r in rows})} teachers of "
        f"{rows[0]['teacher_epochs']} epochs, students {STUDENTS[data]} distilled with `sinkhorn`, {seeds}; metrics "
        f"see {rows[0]['samples']} training images. "
        "Pearson for each task; means of Pearson, Spearman and weighted Kendall; mean top-1 regret in points. "
        "`confidence`, minus the entropy of the teacher's predictions, looks at no label: a reference, not a metric."
    )
    head = [images, *(f"task {t + 1}" for t in tasks), "Pearson", "Spearman", "tau", "regret"]
    name = data if per_class is None else f"{data}-{per_class}"
    apart = "; ".join(f"`{metric}` " + ", ".join(f"{value:.2f} ({arch})" for arch, value in single.items())
                      for metric in SHOWN if (single := within(rows, metric)))  # fmt: skip
    alone = f"Pearson among the teachers of one architecture, mean over the tasks: {apart}." if apart else ""
    return "\n\n".join(filter(None, [text, table(head, lines), alone, _draw(rows, tasks, name, folder)]))


def _draw(rows: list[dict[str, Any]], tasks: list[int], figure_name: str, folder: Path) -> str:
    names = SHOWN
    figure, axes = plt.subplots(len(names), len(tasks), figsize=(1.9 * len(tasks), 6.5), squeeze=False)
    archs = list(dict.fromkeys(row["teacher"] for row in rows))
    for line, name in zip(axes, names, strict=True):
        for axis, task in zip(line, tasks, strict=True):
            some = [row for row in rows if row["task"] == task and name in row["scores"]]
            values = np.array([row["scores"][name] for row in some])
            values = (values - values.min(initial=np.inf)) / max(np.ptp(values) if some else 0, 1e-12)
            for row, value in zip(some, values, strict=True):
                axis.scatter(100 * row["accuracy"], value, s=22, color=COLOURS[row["teacher_task"] % len(COLOURS)],
                             marker="*^"[archs.index(row["teacher"]) % 2])  # fmt: skip
            first = task == tasks[0]
            plain_axes(axis, "student accuracy, %" if name == names[-1] else "", name if first else "")
            axis.tick_params(labelsize=7)
            if name == names[0]:
                axis.set_title(f"task {task + 1}", fontsize=9)
    return save_figure(figure, folder, f"fig07-{figure_name}") + (
        f"\n\nStars: {archs[0]}; triangles: {archs[-1]}; colours: the teacher's task. Metrics are scaled to 0…1."
    )
