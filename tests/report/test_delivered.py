"""The report is about the student that one gets, and says by which images it was judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preceptor import Zoo, run, train
from preceptor.data import Task
from preceptor.distill import saved_run
from preceptor.report import read_story
from preceptor.report.page import render
from tests.distill.toys import toy_task

TASK = toy_task(train=48, seed=1)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("delivered")
    zoo = Zoo(str(folder / "zoo"))
    train(toy_task(classes="wxyz"), student="cnn-4", epochs=1, out=folder / "run", device="cpu")
    zoo.add(f"run:{folder / 'run'}", name="letters")
    return zoo


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The runs whose predictions the report shows."""
    paths: list[Path] = []
    ask = saved_run.split_probabilities

    def recorded(given: Any, *arguments: Any, **more: Any) -> Any:
        paths.extend([given] if isinstance(given, Path) else [])
        return ask(given, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(saved_run, "split_probabilities", recorded)
        yield paths


def told(zoo: Zoo, folder: Path, refit: bool, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that keeps the first trial, the plain student, or the last."""
    monkeypatch.setattr("preceptor.pipeline._best", lambda trials: trials[kept])
    run(
        zoo, TASK, student="cnn-2", out=folder, method="sinkhorn", refit=refit, report=False, recipe="quick",
        epochs=4, batch_size=16, device="cpu",
    )  # fmt: skip


@pytest.mark.parametrize("refit", [True, False])
def test_examples_confusion_and_changes_are_those_of_the_delivered_student(
    zoo: Zoo, tmp_path: Path, refit: bool, asked: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    told(zoo, folder, refit, -1, monkeypatch)
    asked.clear()
    story = read_story(folder, task=TASK)
    plain = folder / "all-labels" / "plain" if refit else folder / "plain"
    assert [path.resolve() for path in asked] == [plain.resolve(), folder.resolve()]
    assert [opinion.who for opinion in story.examples[0].opinions] == [
        "plain student",
        "kept student",
        "teacher",
    ]
    student, alone = (saved_run.score_run(path, TASK, "cpu") for path in (folder, plain))
    assert story.student is not None
    assert story.plain is not None
    assert story.student.result["confusion"] == [list(row) for row in student.confusion]
    assert tuple(story.student.result["per_class_accuracy"].values()) == student.per_class_accuracy
    assert tuple(story.plain.result["per_class_accuracy"].values()) == alone.per_class_accuracy
    page = render(story)
    assert "<title>toy: teachers and student</title>" in page
    assert "confusion of the kept student on the test split" in page
    assert "gained or lost against the plain student, on the test split" in page
    assert "accuracy after each epoch, on held-out training data" in page
    gains = zip(student.per_class_accuracy, alone.per_class_accuracy, strict=True)
    for after, before in gains:
        assert f"</span>{100 * (after - before):+.1f}</td>" in page
    assert f"<dt>data train</dt><dd>{48 if refit else 40}</dd>" in page
    assert ("<dt>data validation</dt><dd>8</dd>" in page) != refit
    assert ("the kept student and the plain one were trained once more" in page) == refit
    assert "those first on which the two students differ; the teacher answers in its own classes" in page


def test_where_the_plain_student_is_kept_it_stands_alone(
    zoo: Zoo, tmp_path: Path, asked: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    told(zoo, folder, True, 0, monkeypatch)
    asked.clear()
    story = read_story(folder, task=TASK)
    assert [path.resolve() for path in asked] == [folder.resolve()]
    assert story.plain is None
    for name in TASK.classes:
        right = [example.opinions[0].right for example in story.examples if example.truth == name]
        assert right == sorted(right), "what it gets wrong comes first"
    page = render(story)
    assert "those first that the student gets wrong.</p>" in page
    assert "Before that the plain student, which is kept, was trained once more, on all labels." in page
    assert "against the plain student" not in page.split('id="training"')[1]


def test_a_single_run_says_by_what_it_was_judged(tmp_path: Path) -> None:
    common = {"student": "cnn-2", "recipe": "quick", "epochs": 2, "device": "cpu"}
    train(TASK, out=tmp_path / "a", **common)
    page = render(read_story(tmp_path / "a", task=TASK))
    assert "confusion of the student on the test split" in page
    assert "accuracy after each epoch, on the test split" in page
    train(TASK, out=tmp_path / "b", patience=2, validation_fraction=0.2, **common)
    assert "accuracy after each epoch, on the validation split" in render(read_story(tmp_path / "b"))


def test_vectors_have_no_pictures(tmp_path: Path) -> None:
    from tests.distill.toys import vector_task

    task: Task = vector_task()
    train(task, student="mlp-4", recipe="quick", epochs=1, device="cpu", out=tmp_path / "a")
    assert read_story(tmp_path / "a", task=task).examples == []


def test_evidence_says_what_the_training_took(tmp_path: Path) -> None:
    train(TASK, student="cnn-2", epochs=1, out=tmp_path / "run", device="cpu")
    written = tmp_path / "run" / "result.json"
    result = json.loads(written.read_text())
    written.write_text(json.dumps({**result, "seconds": 12.5, "hardware": {"joules": 7200}}))
    known = read_story(tmp_path / "run").evidence
    assert (known["training seconds"], known["energy"]) == (12.5, "2.00 Wh")
    written.write_text(json.dumps({**result, "hardware": {}}))
    assert read_story(tmp_path / "run").evidence["energy"] == "not readable on this machine"
