from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from preceptor import Task, Zoo, run
from preceptor.core import PreceptorError
from preceptor.data.unlabelled import epochs_alone
from preceptor.distill.progress import Reporter
from preceptor.distill.recipe import RECIPES
from preceptor.distill.saved_run import load_run, score_run
from preceptor.pipeline import _best
from preceptor.pipeline.trials import Attempt, Trial
from tests.pipeline.blobs import RECIPE, blobs
from tests.torch_defaults import UNUSUAL, unusual


def test_run_ranks_distils_and_keeps_the_best_on_validation(zoo, tmp_path):
    task = blobs("abcd", seed=1)
    said: list[str] = []
    result = run(
        zoo, task, student="mlp-8", out=tmp_path / "r", top=2, method="sinkhorn", notify=said.append, **RECIPE
    )
    assert [row.name for row in result.ranking.rows] == ["same", "other"]
    best = max(result.trials, key=lambda trial: trial.validation_accuracy)
    assert (
        best.validation_accuracy
        == dict((t.teacher, t.validation_accuracy) for t in result.trials)[result.teacher]
    )
    assert [trial.teacher for trial in result.trials] == [None, "same", "other"]
    assert list(result.verdict) == [
        sentence for sentence in said if not sentence.startswith(("distilling", "training", "that took"))
    ]
    kept = json.loads((tmp_path / "r" / "pipeline.json").read_text())
    assert (kept["accuracy"], kept["schema_version"]) == (result.accuracy, 1)
    assert score_run(tmp_path / "r", task, "cpu").accuracy == result.accuracy, (
        "the folder is a run of its own"
    )
    assert load_run(tmp_path / "r").classes == ("a", "b", "c", "d")
    page = (tmp_path / "r" / "report.html").read_text()
    assert 'id="correspondence"' in page
    assert 'id="training"' in page


@pytest.mark.parametrize("default", UNUSUAL)
def test_defaults_of_torch_and_kinds_of_seeds_change_nothing_and_random_numbers_go_on(zoo, tmp_path, default):
    task, call = blobs("abcd", seed=1), {"student": "mlp-8", "method": "sinkhorn", "report": False, **RECIPE}
    expected = run(zoo, task, out=tmp_path / "a", seed=3, **call)
    before = torch.get_rng_state()
    with unusual(default):
        found = run(zoo, task, out=tmp_path / "b", seed=np.int64(3), **call)
    assert (found.accuracy, found.verdict) == (expected.accuracy, expected.verdict)
    torch.testing.assert_close(found.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(torch.get_rng_state(), before)


def test_of_several_methods_the_best_on_validation_is_kept(zoo, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "patient", replace(RECIPES["patient"], epochs=8, min_steps=0))
    monkeypatch.setitem(RECIPES, "mixed", replace(RECIPES["mixed"], epochs=2))
    said: list[str] = []
    quick = {"student": "mlp-8", "device": "cpu", "batch_size": 32}
    result = run(zoo, blobs("abcd", seed=7), out=tmp_path / "r", notify=said.append, **quick)
    assert "sinkhorn and sinkhorn+probe are both tried" in said[1]
    assert [(t.teacher, t.method) for t in result.trials] == [
        (None, "none"), ("same", "sinkhorn"), ("same", "sinkhorn+probe")]  # fmt: skip
    best = max(result.trials, key=lambda one: one.validation_accuracy)
    assert (result.teacher, result.method) == (best.teacher, best.method)
    assert any(f"kept the student of same by {best.method}:" in sentence for sentence in result.verdict)
    options = [
        json.loads((tmp_path / "r" / f"from-same-by-{name}" / "config.json").read_text())["method_options"]
        for name in ("sinkhorn", "sinkhorn+probe")
    ]
    assert options == [{}, RECIPES["patient"].method_options["sinkhorn+probe"]]
    held = json.loads((tmp_path / "r" / "pipeline.json").read_text())
    assert (held["method"], held["config"]["methods"]) == (best.method, ["sinkhorn", "sinkhorn+probe"])
    page = (tmp_path / "r" / "report.html").read_text()
    assert "same by sinkhorn+probe" in page
    assert page.rindex("same by sinkhorn") == page.rindex(f"same by {best.method}"), "the kept one comes last"


@pytest.mark.parametrize(("teacher", "method"), [("same", "sinkhorn"), ("other", "sinkhorn+probe")])
def test_where_held_out_data_do_not_decide_the_plain_student_is_kept_and_said_so(
    zoo, tmp_path, teacher, method
):
    """At learning rate 0 all students are the same."""
    result = run(
        zoo, blobs("abcd", seed=7), student="mlp-8", out=tmp_path / "r", report=False, refit=False, lr=0.0,
        rank_options={"teachers": [teacher]}, **RECIPE,
    )  # fmt: skip
    assert len(result.trials) == 3
    assert len({trial.validation_accuracy for trial in result.trials}) == 1
    assert (result.teacher, result.method) == (None, "none")
    sentence = (
        f"no teacher was better: on validation data the best of them ({teacher} by {method}) ends level with the "
        f"plain student, which is kept; it reaches {100 * result.accuracy:.1f} % on the test split"
    )
    assert result.verdict[-1] == sentence


@pytest.mark.parametrize(
    ("accuracies", "kept"), [((0.5, 0.5, 0.5), 0), ((0.5, 0.7, 0.7), 1), ((0.5, 0.6, 0.7), 2)]
)
def test_at_a_draw_the_earlier_is_kept(accuracies, kept, tmp_path):
    """The plain student before all others, then the better ranked teacher, then the method that suits it."""
    trials = [
        Trial(None if place == 0 else f"teacher {place}", accuracy, tmp_path, None)
        for place, accuracy in enumerate(accuracies)
    ]
    assert _best(trials) is trials[kept]


def test_bars_and_logs_of_trials_name_the_held_out_part_and_the_last_training_the_test_split(
    zoo, tmp_path, monkeypatch
):
    shown, epoch = [], Reporter.epoch

    def told(self, record):
        epoch(self, record)
        shown.append(self.bar.tasks[0].fields["accuracy"])

    monkeypatch.setattr(Reporter, "epoch", told)
    run(
        zoo,
        blobs("abcd"),
        student="mlp-8",
        out=tmp_path,
        method="sinkhorn",
        report=False,
        refit=True,
        **RECIPE,
    )
    trials = [line for line in shown if "validation " in line]
    assert len(trials) == 2 * RECIPE["epochs"]
    assert shown[: len(trials)] == trials
    assert not any("test " in line for line in trials)
    (again,) = (tmp_path / "all-labels").glob("plain/log.jsonl")
    keys = [json.loads(line).keys() for file in (tmp_path / "plain" / "log.jsonl", again)
            for line in file.read_text().splitlines()[-1:]]  # fmt: skip
    assert ["validation_accuracy" in found for found in keys] == [True, False]
    assert ["test_accuracy" in found for found in keys] == [False, True]


def test_the_test_split_decides_nothing(zoo, tmp_path):
    """With other test labels the same student is kept, and only the figures at the end change."""
    task = blobs("abcd", seed=2)
    wrong = Task.from_arrays(
        task.train.load(np.arange(len(task.train))), task.train.labels,
        task.test.load(np.arange(len(task.test))), (task.test.labels + 1) % 4, list("abcd"),
    )  # fmt: skip
    right = run(zoo, task, student="mlp-8", out=tmp_path / "a", report=False, **RECIPE)
    turned = run(zoo, wrong, student="mlp-8", out=tmp_path / "b", report=False, **RECIPE)
    assert turned.teacher == right.teacher
    assert [t.validation_accuracy for t in turned.trials] == [t.validation_accuracy for t in right.trials]
    assert turned.accuracy < right.accuracy


def test_a_harmful_teacher_is_left_aside_and_said_so(zoo, tmp_path):
    # A weight that drowns the labels: the student repeats the teacher's guesses about classes it never saw.
    said = []
    result = run(
        zoo, blobs("abcd", seed=3), student="mlp-8", out=tmp_path / "r", report=False, weight=1e4,
        rank_options={"teachers": ["other"]}, notify=said.append, **RECIPE,
    )  # fmt: skip
    plain, taught = result.trials
    assert taught.validation_accuracy < plain.validation_accuracy
    assert result.teacher is None
    assert "training once more, on all labels: the plain student" in said
    assert result.accuracy == result.baseline_accuracy
    assert any("no teacher helped" in sentence for sentence in result.verdict)


@pytest.mark.parametrize(("asked", "again"), [({}, True), ({"refit": True}, True), ({"refit": False}, False)])
def test_the_kept_student_learns_once_more_from_all_labels(zoo, tmp_path, asked, again, monkeypatch):
    for name in ("patient", "mixed"):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=4, min_steps=0))
    task, said = blobs("abcd", seed=7), []
    quick = {"student": "mlp-8", "device": "cpu", "batch_size": 32, "method": "sinkhorn", "report": False}
    result = run(zoo, task, out=tmp_path / "r", notify=said.append, **asked, **quick)
    ends = {kept.path.name for kept in result.trials if kept.teacher in (None, result.teacher)}
    done = tmp_path / "r" / "all-labels"
    assert {path.name for path in done.iterdir()} == ends if again else not done.exists()
    sizes = [json.loads((tmp_path / "r" / part / "config.json").read_text())["data"]["train"]
             for part in (result.trials[0].path.name, ".")]  # fmt: skip
    assert sizes == ([76, 96] if again else [76, 76])
    assert score_run(tmp_path / "r", task, "cpu").accuracy == result.accuracy
    torch.testing.assert_close(
        result.model.state_dict(), load_run(tmp_path / "r").network.state_dict(), atol=0, rtol=0
    )
    assert any("trained once more on all labels" in sentence for sentence in result.verdict) == again
    both = "training once more, on all labels: the kept student, and the plain one to compare with"
    assert (both in said) == (again and len(ends) > 1)
    assert result.config["refit"] == again
    once_more = run(zoo, task, out=tmp_path / "r", resume=True, **asked, **quick)
    assert (once_more.accuracy, once_more.verdict) == (result.accuracy, result.verdict)


def test_with_patience_the_last_training_has_all_labels_and_the_epochs_of_the_best_weights(zoo, tmp_path):
    task = blobs("abcd", seed=7)
    options = {"student": "mlp-8", "method": "sinkhorn", "report": False, **RECIPE, "epochs": 12}
    call = {"out": tmp_path / "r", "patience": 2, "validation_fraction": 0.25, **options}
    result = run(zoo, task, **call)
    for trial in result.trials if result.teacher else result.trials[:1]:
        watched = [record["validation_accuracy"] for record in trial.result.history]
        best = watched.index(max(watched)) + 1
        assert best < len(watched) < 12, "the trial stopped early, so that there is something to see"
        last = tmp_path / "r" / "all-labels" / trial.path.name
        recipe = json.loads((last / "config.json").read_text())["recipe"]
        assert (recipe["patience"], recipe["epochs"]) == (0, best)
        records = [json.loads(line) for line in (last / "log.jsonl").read_text().splitlines()]
        assert [record["step"] for record in records] == [3 * epoch for epoch in range(1, best + 1)], (
            "of 96 samples"
        )
    again = run(zoo, task, resume=True, **call)
    assert (again.accuracy, again.verdict) == (result.accuracy, result.verdict)


def test_beside_unlabelled_samples_the_plain_student_has_as_many_steps_in_both_trainings(zoo, tmp_path):
    task, more = blobs("abcd", seed=7), blobs("abcd", seed=8, per_class=60).train
    options = {"student": "mlp-8", "report": False, "method": "sinkhorn", **RECIPE}
    run(zoo, task, out=tmp_path / "r", unlabelled=more, **options)
    epochs = [
        json.loads((tmp_path / "r" / part / "plain" / "config.json").read_text())["recipe"]["epochs"]
        for part in (".", "all-labels")
    ]
    smaller = task.split_validation(0.2, 0)[0]
    assert epochs == [epochs_alone(3, part.train, more, RECIPE["batch_size"]) for part in (smaller, task)]
    assert epochs[0] != epochs[1]


def test_the_last_training_goes_on_where_it_was_interrupted(zoo, tmp_path, monkeypatch):
    task, on = blobs("abcd", seed=7), Attempt.on
    call = {"student": "mlp-8", "method": "sinkhorn", "report": False, **RECIPE}
    whole = run(zoo, task, out=tmp_path / "whole", **call)

    def interrupted(self, task, parent, **more):
        if parent.name == "all-labels":
            raise KeyboardInterrupt
        return on(self, task, parent, **more)

    monkeypatch.setattr(Attempt, "on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(zoo, task, out=tmp_path / "r", **call)
    monkeypatch.setattr(Attempt, "on", on)
    again = run(zoo, task, out=tmp_path / "r", resume=True, **call)
    assert (again.accuracy, again.verdict) == (whole.accuracy, whole.verdict)


def test_a_run_goes_on_from_another_folder(zoo, tmp_path, monkeypatch):
    task, call = blobs("abcd", seed=7), {"student": "mlp-8", "method": "sinkhorn", "report": False, **RECIPE}
    whole = run(zoo, task, out=tmp_path / "r", **call)
    monkeypatch.chdir(tmp_path)
    again = run(os.path.relpath(zoo.url), task, out="r", resume=True, **call)
    assert (again.accuracy, again.verdict) == (whole.accuracy, whole.verdict)
    config = json.loads((tmp_path / "r" / "from-same" / "config.json").read_text())
    assert config["teacher"]["from"] == f"{zoo.url}/same"


def test_where_labels_are_many_both_methods_are_tried_by_the_mixed_recipe(zoo, tmp_path, monkeypatch):
    for name, epochs in (("mixed", 8), ("small", 1)):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=epochs))
    task, said = blobs("abcd", seed=7, per_class=100), []
    result = run(
        zoo, task, student="mlp-8", out=tmp_path / "r", report=False, device="cpu", notify=said.append
    )
    assert [trial.method for trial in result.trials] == ["none", "sinkhorn", "sinkhorn+probe"]
    assert "training mlp-8 without a teacher, to compare with (twice: by the recipes mixed and small)" in said
    assert list(result.config["plain"]) == ["plain", "plain-small"]
    found = [json.loads(path.read_text()) for path in (tmp_path / "r" / "all-labels").glob("*/config.json")]
    mixing = {(one["recipe"]["mixup"], one["recipe"]["mixup_until"], one["data"]["train"]) for one in found}
    assert mixing == {(1.0, 0.5, 400)}


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [("mixed", {"mixup_until": 0.8}, {"plain": (1.0, 0.8), "plain-small": (0.0, 1.0)}),
     ("patient", {"mixup_until": 0.8}, {"plain": (1.0, 0.8), "plain-mixed": (1.0, 0.5)}),
     ("mixed", {"mixup": 0.0}, {"plain": (0.0, 0.5)}),
     ("patient", {"mixup": 0.0}, {"plain": (0.0, 0.75), "plain-small": (0.0, 1.0)})],
)  # fmt: skip
def test_the_other_plain_student_is_mixed_by_its_own_recipe(zoo, tmp_path, recipe, options, expected):
    call = {"student": "mlp-8", "method": "kd", "report": False, "refit": False, "epochs": 1, "device": "cpu"}
    result = run(zoo, blobs("abcd"), out=tmp_path / "r", recipe=recipe, **call, **options)
    found = {
        name: json.loads((tmp_path / "r" / name / "config.json").read_text())
        for name in result.config["plain"]
    }
    mixing = {name: (one["recipe"]["mixup"], one["recipe"]["mixup_until"]) for name, one in found.items()}
    assert mixing == expected


def test_without_a_teacher_the_unmixed_student_may_be_the_better_one(zoo, tmp_path, monkeypatch):
    for name, epochs in (("mixed", 1), ("small", 20)):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=epochs))
    call = {"student": "mlp-8", "method": "kd", "report": False, "refit": False, "device": "cpu"}
    result = run(zoo, blobs("abcd", seed=7), out=tmp_path / "r", recipe="mixed", **call)
    assert any(s.startswith("without a teacher the small recipe is better (") for s in result.verdict)


def test_a_recipe_of_ones_own_trains_the_plain_student_once(zoo, tmp_path):
    own = replace(RECIPES["mixed"], epochs=1, batch_size=32)
    result = run(
        zoo,
        blobs("abcd"),
        student="mlp-8",
        out=tmp_path / "r",
        method="kd",
        recipe=own,
        report=False,
        device="cpu",
    )
    assert list(result.config["plain"]) == ["plain"]


def factory() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def test_teachers_with_code_of_their_own_are_used_where_it_is_trusted(tmp_path):
    zoo = Zoo(str(tmp_path / "zoo"))
    vectors = {"input_size": [12], "mean": [0.0] * 12, "std": [1.0] * 12}
    source = "python:tests.pipeline.test_run:factory"
    zoo.add(source, name="own", classes=list("xyz"), preprocessing=vectors, trust_code=True)
    shared = {"student": "mlp-8", "report": False, "method": "sinkhorn", **RECIPE}
    with pytest.raises(PreceptorError, match="say --trust-code"):
        run(zoo, blobs("ab"), out=tmp_path / "a", **shared)
    result = run(zoo, blobs("ab"), out=tmp_path / "b", trust_code=True, **shared)
    assert [trial.teacher for trial in result.trials] == [None, "own"]


def test_a_schedule_takes_its_own_options(zoo, tmp_path):
    result = run(
        zoo,
        blobs("abcd"),
        method="ban",
        generations=1,
        student="mlp-8",
        out=tmp_path / "r",
        report=False,
        **RECIPE,
    )
    assert [trial.teacher for trial in result.trials] == [None, "same"]
