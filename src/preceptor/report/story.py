"""What a report tells, gathered from the files of a ranking, a run or a whole pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preceptor.core import PreceptorError, Ranking
from preceptor.distill.run_folder import RunFolder, parse_object
from preceptor.files import local_path
from preceptor.report.samples import Example, examples, thumbnails
from preceptor.wording import listed

if TYPE_CHECKING:
    from preceptor.data import Task

DEMO = "demo.json"  # what the demonstration has in place of a run's pipeline.json: nothing was held out to choose by
EVIDENCE = (
    "command",
    "commit",
    "created",
    "versions",
    "hardware",
    "seed",
    "seconds",
    "device",
    "engine",
    "sample",
)


@dataclass(frozen=True)
class Run:
    """One training as its folder tells it."""

    name: str
    config: Mapping[str, Any]
    result: Mapping[str, Any] | None  # None: not finished
    log: Sequence[Mapping[str, Any]]
    path: Path

    @property
    def accuracy(self) -> float | None:
        """On the split that the run was judged by."""
        return None if self.result is None else self.result["accuracy"]

    @property
    def watched(self) -> str:
        """The split that was looked at after each epoch."""
        return "validation" if any("validation_accuracy" in record for record in self.log) else "test"


@dataclass(frozen=True)
class Story:
    """Everything that goes on the page; what is not there is left out of it."""

    title: str
    ranking: Ranking | None = None
    runs: Sequence[Run] = ()  # all that were trained
    student: Run | None = None  # the one that there is to use, as the test split has it
    plain: Run | None = None  # likewise, where that is another
    pipeline: Mapping[str, Any] | None = None
    thumbnails: Mapping[str, str] = field(default_factory=dict)  # class -> data URI
    examples: Sequence[Example] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)


def read_story(
    source: Ranking | str | os.PathLike[str], *, task: Task | None = None, title: str | None = None
) -> Story:
    """Gather what the source tells."""
    if isinstance(source, Ranking):
        _check_data(task, source.task.get("classes"))
        shown = title or f"Teachers for {source.task.get('name', 'the task')}"
        return Story(
            shown,
            ranking=source,
            thumbnails=thumbnails(task),
            evidence=_evidence(source.evidence, source.task),
        )
    folder = local_path(source)
    if folder.is_file():
        return read_story(_read_ranking(folder), task=task, title=title)
    return _folder_story(folder, task, title)


def _folder_story(folder: Path, task: Task | None, title: str | None) -> Story:
    ranking = _ranking(folder)
    pipeline = _json(folder / DEMO) or _json(folder / "pipeline.json")
    runs = _runs(folder, pipeline)
    if ranking is None and not runs:
        lacks = "holds neither ranking.json nor a run (config.json)" if folder.exists() else "does not exist"
        raise PreceptorError(
            f"{folder} {lacks}; give a folder that `preceptor rank --out`, `distill`, `train` or `run` wrote"
        )
    student, plain = _delivered(folder, pipeline, runs)
    config: Mapping[str, Any] = student.config if student else {}
    if runs or ranking is None:
        evidence = {**_evidence(config, config.get("data", {})), **_spent(student)}
    else:
        evidence = _evidence(ranking.evidence, ranking.task)
    name = (
        config.get("data", {}).get("name") or (ranking.task.get("name") if ranking else None) or folder.name
    )
    _check_data(task, config.get("classes") or (ranking.task.get("classes") if ranking else None))
    return Story(
        title
        or (pipeline or {}).get("title")
        or f"{name}: {'teachers and student' if ranking and runs else 'teachers' if ranking else 'student'}",
        ranking=ranking,
        runs=runs,
        student=student,
        plain=plain,
        pipeline=pipeline,
        thumbnails=thumbnails(task),
        examples=() if task is None else examples(task, [run for run in (plain, student) if run is not None]),
        evidence=evidence,
    )


def _check_data(task: Task | None, classes: Sequence[str] | None) -> None:
    """Refuse pictures of another task: their classes would bear the wrong names."""
    if task is None or not classes or list(task.classes) == list(classes):
        return
    raise PreceptorError(
        f"the data {task.name!r} has the classes {listed(map(repr, task.classes))}, and the report is about "
        f"{listed(map(repr, classes))}; give the data that it was made with, with the same --classes or --window"
    )


def _ranking(folder: Path) -> Ranking | None:
    file = folder / "ranking.json"
    return _read_ranking(file) if file.exists() else None


def _read_ranking(file: Path) -> Ranking:
    try:
        return Ranking.from_json(file.read_text(encoding="utf-8"))
    except ValueError as error:  # Ranking's own sentence, or bytes that are no text
        raise PreceptorError(f"{file} cannot be read: {error}") from error


def _json(file: Path) -> dict[str, Any] | None:
    return parse_object(file.read_bytes(), file) if file.exists() else None


def _config(folder: Path) -> dict[str, Any]:
    """A run's config.json; one that names no classes was written by something else."""
    config = _json(folder / "config.json") or {}
    if "classes" not in config:
        raise PreceptorError(
            f"{folder / 'config.json'} is no run's: it names no classes; give the folder of a run"
        )
    return config


def _runs(folder: Path, pipeline: Mapping[str, Any] | None) -> list[Run]:
    """The plain student first, then the others; the one that was kept last."""
    if pipeline is not None:
        kept = (pipeline["teacher"], pipeline.get("method"))
        trials = sorted(pipeline["trials"], key=lambda trial: (trial["teacher"], trial.get("method")) == kept)
        return [_run(folder / trial["path"], _trial_name(trial, trials)) for trial in trials]
    if not (folder / "config.json").exists():
        return []
    runs = [_run(folder, _label(folder))]
    if (folder / "baseline" / "config.json").exists():
        runs.insert(0, _run(folder / "baseline", "plain student"))
    return runs


def _delivered(
    folder: Path, pipeline: Mapping[str, Any] | None, runs: Sequence[Run]
) -> tuple[Run | None, Run | None]:
    """The student that there is to use, and the plain one where that is another; both judged by the test split."""
    if not runs:
        return None, None
    if pipeline is None or not (folder / "config.json").exists():  # nothing was held out to choose by
        alone = (run for run in runs if run.config.get("method") == "none" and run is not runs[-1])
        return runs[-1], next(alone, None)
    student = _run(folder, "kept student")
    if pipeline["teacher"] is None:
        return student, None
    path = next(trial["path"] for trial in pipeline["trials"] if trial["teacher"] is None)
    refit = pipeline.get("config", {}).get("refit")
    plain = _run(folder / "all-labels" / path if refit else folder / path, "plain student")
    # Not trained once more, its folder tells how it did on held-out data.
    tested = {"accuracy": pipeline["baseline_accuracy"],
              "per_class_accuracy": pipeline.get("baseline_per_class_accuracy", {})}  # fmt: skip
    return student, replace(plain, result={**(plain.result or {}), **tested})


def _trial_name(trial: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    """The teacher's name, with the method's where a teacher was tried by several."""
    if "name" in trial or trial["teacher"] is None:
        return str(trial.get("name", "plain student"))
    same = [other for other in trials if other["teacher"] == trial["teacher"]]
    return f"{trial['teacher']} by {trial['method']}" if len(same) > 1 else str(trial["teacher"])


def _label(folder: Path) -> str:
    config = _config(folder)
    return "plain student" if config.get("method") == "none" else str(config.get("method", folder.name))


def _run(folder: Path, name: str) -> Run:
    files = RunFolder(folder)
    return Run(name, _config(folder), files.read_result(), files.read_log(), folder)


def _spent(run: Run | None) -> dict[str, Any]:
    """Time and, where the machine let it be read, energy of a training."""
    if run is None or run.result is None:
        return {}
    joules = run.result.get("hardware", {}).get("joules")
    seconds = {"training seconds": run.result["seconds"]} if "seconds" in run.result else {}
    return {
        **seconds,
        "energy": "not readable on this machine" if joules is None else f"{joules / 3600:.2f} Wh",
    }


def _evidence(facts: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: facts[name] for name in EVIDENCE if facts.get(name) is not None}
    described = {
        f"data {name}": data[name]
        for name in ("name", "fingerprint", "samples", "train", "validation", "test")
        if name in data
    }
    return {**shown, **described}
