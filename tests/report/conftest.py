from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from preceptor.core import Ranking, RankingRow
from preceptor.data import Task

TEACHER = tuple("BILOSTZ")
DIGITS = tuple("0125")


@pytest.fixture
def ranking() -> Ranking:
    """Three teachers: a good one whose O is near 0, a worse one, and one that failed."""
    cost = np.full((len(TEACHER), len(DIGITS)), 1.3)
    for teacher, digit in (("O", "0"), ("I", "1"), ("L", "1"), ("Z", "2"), ("S", "5")):
        cost[TEACHER.index(teacher), DIGITS.index(digit)] = 0.4
    plan = np.exp(-cost / 0.1)
    correspondence = {
        "teacher_classes": list(TEACHER),
        "task_classes": list(DIGITS),
        "cost": cost.tolist(),
        "plan": (plan / plan.sum()).tolist(),
    }
    rows = (
        RankingRow(
            "letters",
            1,
            {"sinkhorn": -0.4, "logme": 0.9},
            {},
            0.5,
            {"sinkhorn": 0.1},
            {"correspondence": correspondence},
        ),
        RankingRow("greek", 2, {"sinkhorn": -0.9, "logme": 1.1}, {}, 0.4, {"sinkhorn": 0.1}),
        RankingRow("<broken>", None, {}, {"teacher": "its weights are truncated; add it again"}),
    )
    agreement = {"sinkhorn": {"sinkhorn": 1.0, "logme": -1.0}, "logme": {"sinkhorn": -1.0, "logme": 1.0}}
    return Ranking(
        "sinkhorn", rows, {"name": "digits", "fingerprint": "f" * 64}, agreement, {"letters": 0.97, "greek": 0.03},
        {"command": "preceptor rank zoo digits", "versions": {"torch": "2"}, "seconds": 1.5}, "zoo",
    )  # fmt: skip


@pytest.fixture
def task() -> Task:
    pixels = np.random.default_rng(0).integers(0, 255, (16, 12, 12), dtype=np.uint8)
    labels = np.arange(16) % 4
    return Task.from_arrays(pixels, labels, pixels, labels, DIGITS, name="digits")


@pytest.fixture
def pipeline_folder(tmp_path, ranking):
    """A pipeline's folder written by hand: the student of `letters` beats the plain one by 25 points."""
    (tmp_path / "ranking.json").write_text(ranking.to_json())
    trials = []
    for path, teacher, accuracy in (("plain", None, 0.5), ("from-letters", "letters", 0.75)):
        write_run(tmp_path / path, teacher, accuracy, {name: accuracy for name in DIGITS})
        trials.append({"teacher": teacher, "validation_accuracy": accuracy, "path": path})
    write_run(tmp_path, "letters", 0.72, {"0": 0.75, "1": 0.75, "2": 0.6, "5": 0.4})
    before = {"0": 0.5, "1": 0.5, "2": 0.6, "5": 0.5}
    story = {"teacher": "letters", "accuracy": 0.72, "baseline_accuracy": 0.51, "trials": trials,
             "baseline_per_class_accuracy": before, "verdict": ["kept the student of letters"]}  # fmt: skip
    (tmp_path / "pipeline.json").write_text(json.dumps(story))
    return tmp_path


def write_run(folder: Path, teacher: str | None, accuracy: float, per_class: dict[str, float]) -> None:
    """The files of one training, but for its weights."""
    folder.mkdir(exist_ok=True)
    terms = {"task": 1.0} if teacher is None else {"task": 1.0, "sinkhorn": 0.3}
    config = {
        "arch": "cnn-4",
        "method": "sinkhorn" if teacher else "none",
        "classes": list(DIGITS),
        "seed": 0,
        "data": {"name": "digits", "fingerprint": "f" * 64},
        "command": "preceptor run zoo digits",
    }
    result = {"accuracy": accuracy, "confusion": (np.eye(4, dtype=int) * 3 + 1).tolist(),
              "per_class_accuracy": per_class, "notes": []}  # fmt: skip
    records = [{"epoch": e, "terms": terms, "test_accuracy": accuracy * e / 3} for e in (1, 2, 3)]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
