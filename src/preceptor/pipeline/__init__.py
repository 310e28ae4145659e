"""Alg. 1: rank the zoo, distil the best teacher, and give the student only if the teacher did not harm it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preceptor.core import PreceptorError, Ranking
from preceptor.data import Split, Task
from preceptor.distill.devices import resolve_device
from preceptor.distill.inputs import cut_to_squares
from preceptor.distill.saved_run import score_run
from preceptor.files import check_can_write, write_atomically
from preceptor.metrics import DEFAULT_METRICS
from preceptor.pipeline.trials import (
    PATIENT,
    Attempt,
    Trial,
    Way,
    choose_methods,
    choose_recipe,
    few_labels,
    further_samples,
    in_order,
    plain_attempts,
)
from preceptor.pipeline.verdict import better_alone, no_better_than_nothing, outcome, ranked_sentence
from preceptor.rank.ranking import rank
from preceptor.rank.settings import choose_teachers
from preceptor.zoo import Teacher, Zoo

if TYPE_CHECKING:
    from torch import nn

VALIDATION = 0.2  # of the training set: decides between the teachers and the plain student
NEVER = 10**9  # epochs between two looks at the test split


@dataclass(frozen=True)
class PipelineResult:
    """What `run` gives: the student it kept, why, and what every other one did."""

    model: nn.Module
    teacher: str | None  # the teacher of the student that was kept; None: no teacher helped
    method: str  # that it was kept from; "none": the plain student
    accuracy: float  # of the kept student, on the test split, which decided nothing
    baseline_accuracy: float  # of the plain student, likewise
    ranking: Ranking
    trials: Sequence[Trial]
    verdict: Sequence[str]  # what happened, in sentences
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, every trial and the ranking."""
        from preceptor.notebook import paragraphs, table

        rows = [
            (trial.teacher or "none (plain student)", trial.method, f"{100 * trial.validation_accuracy:.1f} %",
             "kept" if (trial.teacher, trial.method) == (self.teacher, self.method) else "")
            for trial in self.trials
        ]  # fmt: skip
        trials = table(["teacher", "method", "accuracy on validation data", ""], rows)
        return paragraphs(self.verdict) + trials + self.ranking._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """The content of pipeline.json."""
        return {
            "teacher": self.teacher,
            "method": self.method,
            "accuracy": self.accuracy,
            "baseline_accuracy": self.baseline_accuracy,
            "verdict": list(self.verdict),
            "trials": [
                {
                    "teacher": trial.teacher,
                    "method": trial.method,
                    "validation_accuracy": trial.validation_accuracy,
                    "path": trial.path.name,
                }
                for trial in self.trials
            ],
            "config": dict(self.config),
        }


def run(
    zoo: Zoo | str | os.PathLike[str],
    task: Task | str | os.PathLike[str],
    *,
    student: str = "wrn-16-1",
    out: str | os.PathLike[str],
    method: str | Sequence[str] | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    top: int = 1,
    recipe: Any = None,
    validation: float = VALIDATION,
    refit: bool | None = None,
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    report: bool = True,
    trust_code: bool = False,
    rank_options: Mapping[str, Any] | None = None,
    unlabelled: Split | Task | str | os.PathLike[str] | None = None,
    notify: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> PipelineResult:
    """Rank the teachers of a zoo for a task and distil the best into a student (Alg. 1).

    A part of the training set is held out. The plain student and one student for each of the `top` teachers and each
    method are trained on the rest; the best on the held-out part is kept. So a teacher that harms is found out and left
    aside, and the result says so. The test split decides nothing: it is read once, at the end.

    Args:
        zoo: The teachers.
        task: The data.
        student: An architecture's name.
        out: Folder for the ranking, a run folder for each trial, the kept student and the report.
        method: How to distil: one method or several, of which validation data choose; by default `sinkhorn`, and where
            there are fewer than 100 training images a class and no option of a method is given, `sinkhorn+probe` too.
        metrics: Metrics of the ranking; the first decides.
        top: How many of the best teachers to try.
        recipe: How to train: a name of `RECIPES` or a `Recipe`; by default "patient" where there are fewer than 100
            training images a class and `options` say nothing of epochs or mixing, "small" otherwise. Beside a patient
            plain student a short one is trained, and the better counts: teachers must not gain by spoiling it.
        validation: The share of each training class that is held out.
        refit: Train the kept student and the plain one once more, on all labels, when the choice is made; by default
            where there are fewer than 100 training images a class.
        seed: Decides the held-out part, weights, data order and augmentation.
        device: "auto", "cpu", "cuda", …
        resume: Go on with an interrupted run in `out`.
        report: Write ``report.html``.
        trust_code: Let teachers that came from ``python:`` sources run their code.
        rank_options: Further arguments of `rank`.
        unlabelled: Further samples for the students of teachers, as in `train`.
        notify: Told what happens, sentence by sentence.
        **options: Settings of the recipe and options of the method.
    """
    if top < 1:
        raise PreceptorError(f"top {top} came; at least 1 teacher has to be tried")
    zoo = zoo if isinstance(zoo, Zoo) else Zoo(os.fspath(zoo))
    task = task if isinstance(task, Task) else Task(task)
    # All that can be known to be wrong is told before the ranking, not after it.
    smaller, held = task.split_validation(validation, seed)
    judged = Task.from_splits(smaller.train, held, task.classes, f"{task.name} (validation)")
    told, recipe = choose_recipe(recipe, task, options)
    few = few_labels(task)
    both, methods = choose_methods(method, few, options)
    ways = [Way.of(name, recipe, options, student, task) for name in methods]
    extra, known = (None, []) if unlabelled is None else further_samples(unlabelled, ways, task, held)
    asked = {"device": _torch_name(device), "trust_code": trust_code, **(rank_options or {})}
    for way in ways:
        way.fitting.check_any(zoo, choose_teachers(zoo, asked.get("teachers")))
    folder = _begin(Path(out), resume)
    squares = cut_to_squares(task.train, task.kind, ways[0].settings.recipe.image_size)
    for sentence in (*told, *both, *known, *squares):
        notify(sentence)
    ranking = rank(zoo, task, metrics, **asked)
    write_atomically(folder / "ranking.json", ranking.to_json().encode())
    leaders = _leaders(ranking, top)
    for way in ways:
        way.fitting.check_all(zoo, leaders, [row.name for row in ranking.rows])
    verdict = [_said(notify, ranked_sentence(ranking, leaders))]
    useless = no_better_than_nothing(zoo, task, ranking, leaders, asked["device"], trust_code)
    verdict += [_said(notify, sentence) for sentence in useless]

    shared = {"student": student, "seed": seed, "device": device, "resume": resume}
    twice = " (twice: patiently, and the short way)" if recipe == PATIENT else ""
    notify(f"training {student} without a teacher, to compare with{twice}")
    alone = [one.on(judged, folder) for one in plain_attempts(judged.train, recipe, options, extra, shared)]
    verdict += [_said(notify, sentence) for sentence in better_alone(alone)]
    trials = [max(alone, key=lambda one: one.validation_accuracy)]
    given = {"recipe": recipe, "unlabelled": extra, **shared, **options}
    attempts = [
        Attempt.by(way.method, name, _teacher(zoo, name, trust_code), given, len(ways) > 1)
        for name in leaders
        for way in in_order(ways, zoo.card(name).classes, task.classes)
    ]
    for attempt in attempts:
        notify(f"distilling {attempt.teacher} by {attempt.method}")
        trials.append(attempt.on(judged, folder))
    kept = max(trials, key=lambda one: (one.validation_accuracy, one.teacher is not None))
    ends = {one.path.name: one for one in (kept, trials[0])}
    refit = few if refit is None else refit
    if refit:
        notify("training once more, on all labels: the kept student, and the plain one to compare with")
        attempts += plain_attempts(task.train, recipe, options, extra, shared)
        # Evaluated at the end only: until then nothing looks at the test split.
        ends = {one.folder: one.on(task, folder / "all-labels", evaluate_every=NEVER)
                for one in attempts if one.folder in ends}  # fmt: skip
    tested = {name: score_run(one.path, task, device).accuracy for name, one in ends.items()}
    accuracy, baseline = (tested[one.path.name] for one in (kept, trials[0]))
    verdict += [_said(notify, sentence) for sentence in outcome(kept, trials, accuracy, baseline, refit)]
    _keep(ends[kept.path.name].path, folder)
    result = PipelineResult(
        model=ends[kept.path.name].result.model, teacher=kept.teacher, method=kept.method, accuracy=accuracy,
        baseline_accuracy=baseline, ranking=ranking, trials=tuple(trials), verdict=tuple(verdict), path=folder,
        config={"zoo": zoo.url, "task": task.name, "student": student, "methods": list(methods), "top": top,
                "seed": seed, "validation": validation, "refit": refit, "fingerprint": task.fingerprint,
                "plain": {one.path.name: one.validation_accuracy for one in alone}},
    )  # fmt: skip
    write_atomically(folder / "pipeline.json", json.dumps(result.to_json(), indent=2).encode())
    if report:
        from preceptor.report import write_report

        write_report(folder, folder / "report.html", task=task)
    return result


def _teacher(zoo: Zoo, name: str, trust_code: bool) -> str | Teacher:
    """Where the teacher lies; one of a python: source as a network, for trust does not travel with a path."""
    if trust_code and zoo.card(name).source.kind == "python":
        return zoo.load(name, trust_code=True)
    return f"{zoo.url.rstrip('/')}/{name}"


def _begin(folder: Path, resume: bool) -> Path:
    if (folder / "ranking.json").exists() and not resume:
        raise PreceptorError(
            f"{folder} already holds a run; pass --resume to continue it or choose another folder"
        )
    check_can_write(folder / "ranking.json")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _torch_name(device: str) -> str:
    return str(resolve_device(device))


def _leaders(ranking: Ranking, top: int) -> list[str]:
    _ = ranking.best  # raises with the reasons where no teacher has a rank
    return [row.name for row in ranking.rows if row.rank is not None and row.rank <= top]


def _said(notify: Callable[[str], None], sentence: str) -> str:
    notify(sentence)
    return sentence


def _keep(student: Path, folder: Path) -> None:
    """Put the kept student's files at the top, so that predict, export and zoo take the folder as a run."""
    for name in ("model.safetensors", "config.json", "result.json", "log.jsonl"):
        beside = folder / f".{name}.part"
        shutil.copyfile(student / name, beside)
        os.replace(beside, folder / name)
