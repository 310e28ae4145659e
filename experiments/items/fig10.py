"""Fig. 10: coarse-grained selection, five domains."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments import results
from experiments.assessments import judges, mean_agreement
from experiments.book import COLOURS, NOT_RUN, Book, Sample, chooser, plain_axes, save_figure, table
from experiments.jobs import Job, Scale, distillation
from experiments.lab import Lab

NAME, TITLE = "fig10", "Fig. 10: coarse-grained selection over five domains"
DOMAINS = ("birds", "cars", "dogs", "flowers", "fruits")
TEACHER, STUDENT = "mobilenet-1.0", "mobilenet-0.25"
SCORES = "fig10-scores"
SHOWN = ("sinkhorn", "bridge")  # the paper's metric and ours
CHOICE = (
    "The teacher of a task's own domain has learnt from the very images on which it is assessed, so to find it is "
    "easy: most metrics do, and so does the teacher's mere confidence. The two columns on the right are about the four "
    "others: mean Pearson over the tasks, and what the teacher with the highest score loses against the best of the "
    "four. No metric's order is that of the students there. Most lose less than a blind choice, but these teachers "
    "hardly help at all and differ by little more than seeds. `sfda` has no opinion: 1,200 samples of 1,024 features "
    "are told apart whatever they are, so that teachers tie, which counts as not found."
)
Scores = dict[tuple[str, str], dict[str, float]]  # of (teacher's domain, task's domain) by metric


def jobs(scale: Scale) -> list[Job]:
    """Students of every teacher, not only of the selected one: they say what the choice is worth."""
    found = []
    for seed in scale.seeds:
        for domain in scale.few(DOMAINS):
            own = scale.teacher(domain, TEACHER)
            found.append(distillation(scale, NAME, domain, STUDENT, "none", own, 0, seed, tier=41))
            for other in scale.few(DOMAINS):
                spec = scale.teacher(other, TEACHER)
                found.append(distillation(scale, NAME, domain, STUDENT, "sinkhorn", spec, 0, seed, tier=41))
    return found


def measure(lab: Lab) -> None:
    """Metrics of every teacher on every domain's training images."""
    path = lab.results / f"{SCORES}.jsonl"
    there = {(row["data"], row["teacher_data"]) for row in results.read(path)}
    domains = lab.scale.few(DOMAINS)
    if lab.missing([lab.scale.teacher(domain, TEACHER) for domain in domains]):
        print("fig10: teachers are missing, nothing to measure yet")
        return
    for domain in domains:
        found = []
        for other in domains:
            if (domain, other) in there:
                continue
            teacher = lab.teacher(lab.scale.teacher(other, TEACHER))
            outputs = lab.outputs(teacher, domain, lab.task(domain, 0)[0])
            given = {"features": outputs.features, "labels": outputs.labels, "logits": outputs.logits,
                     "classifier": teacher.classifier.weight.detach().float().cpu().numpy()}  # fmt: skip
            scores = {name: float(metric(**given)) for name, metric in judges().items()}
            found.append({"data": domain, "teacher_data": other, "scores": scores, "seed": 0})
        if found:
            results.append(path, found)


def section(book: Book, folder: Path) -> str:
    """What every teacher is worth on every task, what metrics choose, and the figure."""
    scale = book.scale_of(NAME)
    choose = chooser(jobs(scale))
    domains = scale.few(DOMAINS)
    text = (
        "40 classes of each domain, 30 training images each, 112 px, no weights from ImageNet; flowers and fruits "
        "stand for the paper's indoor scenes and aircraft, which were not to be had. The paper's figure has no "
        "numbers: its metric finds the own domain for each task, and students gain."
    )
    scores = {(row["teacher_data"], row["data"]): row["scores"] for row in book.rows(SCORES)}
    if len(scores) < len(domains) ** 2:
        return text + f"\n\n*{NOT_RUN}*"
    alone = {domain: choose(data=domain, name="none") for domain in domains}
    taught = {(other, domain): [j for j in choose(data=domain, name="sinkhorn") if j.teacher.data == other]
              for other in domains for domain in domains}  # fmt: skip
    accuracy = {pair: book.accuracy(some) for pair, some in taught.items()}
    lines = [["alone", *(book.accuracy(alone[domain]).shown(digits=1) for domain in domains)]]
    lines += [[other, *(accuracy[other, domain].shown(digits=1) for domain in domains)] for other in domains]
    lines.append(
        ["the own teacher itself", *(_reached(book, scale, domain).shown(digits=1) for domain in domains)]
    )
    gains = {d: book.gains(taught[d, d], alone[d]) for d in domains}
    own = ["own teacher's gain", *(gain.shown(digits=1, signed=True) for gain in gains.values())]
    clear = [d for d, gain in gains.items() if gain.mean > 2 * gain.error]
    note = f"The own teacher's gain is above two standard errors on {', '.join(clear) or 'no domain'} only."
    means = {pair: sample.mean for pair, sample in accuracy.items()}
    bars = [(d, book.accuracy(alone[d]), accuracy[_first(domains, scores, SHOWN[0], d), d]) for d in domains]
    return "\n\n".join([
        text, table(["teacher / task", *domains], [*lines, own]), note, CHOICE, _choices(domains, scores, means),
        _draw(domains, scores, bars, folder),
    ])  # fmt: skip


def _reached(book: Book, scale: Scale, domain: str) -> Sample:
    """The accuracy of a domain's teacher on its own test images."""
    spec = scale.teacher(domain, TEACHER)
    rows = book.rows("teachers", data=domain, arch=spec.arch, epochs=spec.epochs)
    return Sample(tuple(row["accuracy"] for row in rows[-1:]))


def _first(domains: list[str], scores: Scores, name: str, task: str) -> str:
    """The teacher that a metric selects for a task."""
    return max(domains, key=lambda other: scores[other, task][name])


def _is_first(domains: list[str], scores: Scores, name: str, task: str) -> bool:
    """Whether a metric puts the task's own domain above all others; a tie does not."""
    return all(scores[task, task][name] > scores[other, task][name] for other in domains if other != task)


def _choices(domains: list[str], scores: Scores, means: dict[tuple[str, str], float]) -> str:
    """How often each metric finds the own domain, and how well it does among the other teachers."""
    lines = []
    for name in next(iter(scores.values())):
        found = sum(_is_first(domains, scores, name, domain) for domain in domains)
        pairs = [([scores[o, d][name] for o in domains if o != d], [means[o, d] for o in domains if o != d])
                 for d in domains]  # fmt: skip
        rest = mean_agreement(pairs) if len(domains) > 2 else {"pearson": np.nan, "regret": np.nan}
        pearson = f"{rest['pearson']:.2f}" if np.isfinite(rest["pearson"]) else "–"
        lines.append([name, f"{found} of {len(domains)}", pearson, f"{rest['regret']:.1f}"])
    others = [[means[o, d] for o in domains if o != d] for d in domains]
    blind = 100 * np.mean([max(some) - np.mean(some) for some in others])
    lines.append(["blind choice", "", "", f"{blind:.1f}"])
    return table(["metric", "own domain found", "among the others: Pearson", "regret, points"], lines)


def _draw(domains: list[str], scores: Scores, bars: list[tuple[str, Sample, Sample]], folder: Path) -> str:
    figure, (*matrices, right) = plt.subplots(1, 1 + len(SHOWN), figsize=(12, 3.6))
    for axis, name in zip(matrices, SHOWN, strict=True):
        values = np.array([[scores[other, domain][name] for domain in domains] for other in domains])
        values = (values - values.min(0)) / np.maximum(np.ptp(values, axis=0), 1e-12)
        axis.imshow(values, cmap="Blues", vmin=0, vmax=1.4)
        for i in range(len(domains)):
            for j in range(len(domains)):
                axis.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", fontsize=8)
        axis.set_xticks(range(len(domains)), domains)
        axis.set_yticks(range(len(domains)), domains)
        axis.set_xlabel("task")
        axis.set_ylabel("teacher" if axis is matrices[0] else "")
        axis.set_title(f"{name}, scaled for each task", fontsize=10)
    places = np.arange(len(bars))
    for shift, colour, label, column in (
        (-0.2, COLOURS[7], "alone", 1),
        (0.2, COLOURS[0], "with the selected teacher", 2),
    ):
        heights = [100 * bar[column].mean for bar in bars]
        errors = [0 if bar[column].error != bar[column].error else 100 * bar[column].error for bar in bars]
        right.bar(places + shift, heights, 0.38, yerr=errors, color=colour, label=label)
    right.set_xticks(places, [bar[0] for bar in bars])
    plain_axes(right, "", "student accuracy, %")
    right.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return save_figure(figure, folder, "fig10")
