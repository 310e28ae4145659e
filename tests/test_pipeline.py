from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor import Task, Zoo, run, train
from preceptor.core import PreceptorError, Ranking, RankingRow
from preceptor.distill.recipe import RECIPES
from preceptor.distill.saved_run import load_run, score_run
from preceptor.pipeline.trials import Attempt, Way, choose_methods, choose_recipe, in_order
from preceptor.pipeline.verdict import no_better_than_nothing
from preceptor.rank.reference import untrained_score

RECIPE = {"recipe": "quick", "epochs": 3, "device": "cpu", "batch_size": 32}


def blobs(classes: str, seed: int = 0, per_class: int = 24, noise: float = 0.6) -> Task:
    """Vectors around one point for each letter; the same letter has the same point in every task."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(len(classes)), count)
        points = np.stack([np.random.default_rng(ord(c)).normal(size=12) for c in classes])
        vectors = points[labels] + noise * random.normal(size=(len(labels), 12))
        return vectors.astype(np.float32), labels

    return Task.from_arrays(*draw(per_class), *draw(per_class), list(classes), name=f"blobs {classes}")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Zoo:
    folder = tmp_path_factory.mktemp("pipeline")
    zoo = Zoo(str(folder / "zoo"))
    for name, classes in (("same", "abcd"), ("other", "wxyz")):
        train(blobs(classes, per_class=60), student="mlp-32", out=folder / name, recipe="quick", device="cpu")
        zoo.add(f"run:{folder / name}", name=name)
    return zoo


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
        sentence for sentence in said if not sentence.startswith(("distilling", "training"))
    ]
    kept = json.loads((tmp_path / "r" / "pipeline.json").read_text())
    assert kept["accuracy"] == result.accuracy
    assert score_run(tmp_path / "r", task, "cpu").accuracy == result.accuracy, (
        "the folder is a run of its own"
    )
    assert load_run(tmp_path / "r").classes == ("a", "b", "c", "d")
    page = (tmp_path / "r" / "report.html").read_text()
    assert 'id="bridge"' in page
    assert 'id="training"' in page


@pytest.mark.parametrize(
    ("per_class", "recipe", "options", "expected"),
    [(99, None, {}, "patient"), (100, None, {}, "small"), (24, "adamw", {}, "adamw"),
     (24, None, {"mixup": 0.5}, "small"), (24, None, {"epochs": 3}, "small"), (24, None, {"weight": 3.0}, "patient")],
)  # fmt: skip
def test_the_recipe_goes_by_the_number_of_labels(per_class, recipe, options, expected):
    told, chosen = choose_recipe(recipe, blobs("ab", per_class=per_class), options)
    assert chosen == expected
    assert bool(told) == (chosen == "patient")
    assert all(f"{per_class} training vectors a class are few" in sentence for sentence in told)


@pytest.mark.parametrize("patiently", [True, False])
def test_beside_a_patient_plain_student_a_short_one_is_trained_and_the_better_counts(
    zoo, tmp_path, monkeypatch, patiently
):
    quick = {"student": "mlp-8", "device": "cpu", "report": False, "batch_size": 32, "method": "sinkhorn"}
    epochs = {"patient": 20, "small": 1} if patiently else {"patient": 1, "small": 20}
    for name, count in epochs.items():
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=count))
    said: list[str] = []
    result = run(zoo, blobs("abcd", seed=7), out=tmp_path / "r", notify=said.append, **quick)
    assert "24 training vectors a class are few" in said[0]
    patient, short = (
        json.loads((tmp_path / "r" / name / "result.json").read_text())["accuracy"]
        for name in ("plain", "plain-small")
    )
    configs = [
        json.loads((tmp_path / "r" / name / "config.json").read_text())["recipe"]["mixup"]
        for name in ("plain", "plain-small", "from-same")
    ]
    assert configs == [1.0, 0.0, 1.0]
    assert result.trials[0].teacher is None
    assert (patient > short) == patiently
    assert result.trials[0].validation_accuracy == max(patient, short)
    assert result.config["plain"] == {"plain": patient, "plain-small": short}
    told = any("without a teacher the short recipe is better" in sentence for sentence in result.verdict)
    assert told != patiently


@pytest.mark.parametrize(
    ("method", "few", "options", "expected"),
    [(None, True, {}, ("sinkhorn", "sinkhorn+probe")), (None, False, {}, ("sinkhorn",)),
     (None, True, {"lr": 0.1}, ("sinkhorn", "sinkhorn+probe")), (None, True, {"weight": 3.0}, ("sinkhorn",)),
     ("kd", True, {}, ("kd",)), (["rkd", "kd", "rkd"], False, {}, ("rkd", "kd"))],
)  # fmt: skip
def test_two_methods_are_tried_where_labels_are_few_and_nothing_is_asked_for(method, few, options, expected):
    said, chosen = choose_methods(method, few, options)
    assert chosen == expected
    assert bool(said) == (method is None and len(expected) == 2)


@pytest.mark.parametrize(("refit", "again"), [(None, True), (True, True), (False, False)])
def test_with_few_labels_the_kept_student_learns_once_more_from_all_of_them(
    zoo, tmp_path, refit, again, monkeypatch
):
    for name in ("patient", "small"):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=4))
    task, said = blobs("abcd", seed=7), []
    quick = {"student": "mlp-8", "device": "cpu", "batch_size": 32, "method": "sinkhorn", "report": False}
    result = run(zoo, task, out=tmp_path / "r", refit=refit, notify=said.append, **quick)
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
    assert result.config["refit"] == again
    once_more = run(zoo, task, out=tmp_path / "r", refit=refit, resume=True, **quick)
    assert (once_more.accuracy, once_more.verdict) == (result.accuracy, result.verdict)


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


def test_where_labels_are_many_nothing_is_trained_twice(zoo, tmp_path):
    task = blobs("abcd", seed=7, per_class=100)
    result = run(
        zoo, task, student="mlp-8", out=tmp_path / "r", report=False, recipe="quick", epochs=1, device="cpu"
    )
    assert [trial.method for trial in result.trials] == ["none", "sinkhorn"]
    assert not (tmp_path / "r" / "all-labels").exists()


@pytest.mark.parametrize(
    ("known", "expected"),
    [("abcd", ["sinkhorn", "kd", "sinkhorn+probe"]), ("abcx", ["sinkhorn+probe", "sinkhorn", "kd"])],
)
def test_the_method_that_suits_the_teacher_comes_first_and_wins_ties(known, expected):
    ways = [Way(name, None, None) for name in ("sinkhorn", "kd", "sinkhorn+probe")]
    assert [way.method for way in in_order(ways, known, "abcd")] == expected


def test_of_several_methods_the_best_on_validation_is_kept(zoo, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "patient", replace(RECIPES["patient"], epochs=8))
    monkeypatch.setitem(RECIPES, "small", replace(RECIPES["small"], epochs=2))
    said: list[str] = []
    quick = {"student": "mlp-8", "device": "cpu", "batch_size": 32}
    result = run(zoo, blobs("abcd", seed=7), out=tmp_path / "r", notify=said.append, **quick)
    assert "sinkhorn and sinkhorn+probe are both tried" in said[1]
    assert [(t.teacher, t.method) for t in result.trials] == [
        (None, "none"), ("same", "sinkhorn"), ("same", "sinkhorn+probe")]  # fmt: skip
    best = max(result.trials, key=lambda one: (one.validation_accuracy, one.teacher is not None))
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


@pytest.mark.parametrize(("score", "said"), [(-1.37, "hardly better"), (-1.39, "no better"), (-1.3, None)])
def test_what_is_said_about_scores_near_chance(zoo, score, said):
    task = blobs("abcd")
    row = RankingRow(name="same", rank=1, scores={"bridge": score})
    told = no_better_than_nothing(zoo, task, Ranking(metric="bridge", rows=(row,)), ["same"], "cpu", False)
    assert [said in sentence for sentence in told] == ([] if said is None else [True])


def test_unlabelled_samples_of_the_task_itself_are_told_and_the_held_out_ones_are_not_trained_on(
    zoo, tmp_path
):
    task, said = blobs("abcd", seed=8), []
    options = {"student": "mlp-8", "out": tmp_path / "r", "report": False, "notify": said.append, **RECIPE}
    options["method"] = "sinkhorn"
    run(zoo, task, unlabelled=task.train, **options)
    assert "96 of the 96 unlabelled samples are in the training set with their labels already" in said
    notes = json.loads((tmp_path / "r" / "from-same" / "result.json").read_text())["notes"]
    left = 96 - len(task.split_validation(0.2, 0)[1])
    assert notes == [
        f"{left} of the {left} unlabelled samples are in the training set with their labels already"
    ]
    judging = task.split_validation(0.2, 0)[1]
    with pytest.raises(
        PreceptorError, match="all 20 unlabelled samples are among those held out to judge by"
    ):
        run(zoo, task, unlabelled=judging, **{**options, "out": tmp_path / "t"})
    assert not (tmp_path / "t").exists()
    said.clear()
    run(zoo, task, unlabelled=task.test, **{**options, "out": tmp_path / "s"})
    assert any("are in the test set" in sentence for sentence in said)


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
    result = run(
        zoo, blobs("abcd", seed=3), student="mlp-8", out=tmp_path / "r", report=False, weight=1e4,
        rank_options={"teachers": ["other"]}, **RECIPE,
    )  # fmt: skip
    plain, taught = result.trials
    assert taught.validation_accuracy < plain.validation_accuracy
    assert result.teacher is None
    assert result.accuracy == result.baseline_accuracy
    assert any("no teacher helped" in sentence for sentence in result.verdict)


def test_the_untrained_yardstick_has_fresh_weights(tmp_path):
    folder = tmp_path / "raw"
    train(blobs("wxyz"), student="mlp-32", out=folder, recipe="quick", epochs=1, lr=0.0, device="cpu")
    zoo = Zoo(str(tmp_path / "zoo"))
    zoo.add(f"run:{folder}", name="raw")
    task = blobs("abcd", seed=4)
    teacher = zoo.load("raw")
    assert untrained_score(teacher, task) is not None
    scores = [untrained_score(teacher, task, seed=seed) for seed in range(3)]
    assert len(set(scores)) == 3, "fresh weights for each seed"


@pytest.mark.parametrize(("noise", "useless"), [(0.6, False), (100.0, True)])
def test_a_best_teacher_that_is_no_better_than_chance_is_called_useless(zoo, tmp_path, noise, useless):
    task = blobs("abcd", seed=5, noise=noise)
    result = run(zoo, task, student="mlp-8", out=tmp_path / "r", report=False, **RECIPE)
    told = [sentence for sentence in result.verdict if "nothing in this zoo looks useful" in sentence]
    assert bool(told) == useless
    assert all("no better than chance (-1.386)" in sentence for sentence in told)


def test_by_sinkhorn_a_best_teacher_below_the_untrained_network_is_called_useless(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr("preceptor.pipeline.verdict.untrained_score", lambda *_, **__: 0.0)
    options = {"student": "mlp-8", "out": tmp_path / "r", "report": False, "metrics": ("sinkhorn",), **RECIPE}
    result = run(zoo, blobs("abcd", seed=5), **options)
    assert any("no better than the same network untrained" in sentence for sentence in result.verdict)


def test_wrong_calls_say_what_to_do(zoo, tmp_path):
    task = blobs("abcd")
    with pytest.raises(PreceptorError, match="at least 1 teacher"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", top=0)
    with pytest.raises(PreceptorError, match="method 'magic' is unknown"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method="magic")
    with pytest.raises(PreceptorError, match="no method came"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method=[])
    with pytest.raises(PreceptorError, match="method aml learns nothing from unlabelled samples"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method=["sinkhorn", "aml"], unlabelled=task)
    with pytest.raises(PreceptorError, match="did you mean 'epochs'"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", epoch=3)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "ranking.json").write_text("{}")
    with pytest.raises(PreceptorError, match="pass --resume"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r")
    with pytest.raises(PreceptorError, match="there is no zoo"):
        run(Zoo(str(tmp_path / "empty")), task, student="mlp-8", out=tmp_path / "s")


def test_a_student_that_cannot_be_built_is_told_before_the_ranking(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr("preceptor.pipeline.rank", lambda *_, **__: pytest.fail("the ranking began"))
    with pytest.raises(PreceptorError, match="no architecture 'mlp8'"):
        run(zoo, blobs("abcd"), student="mlp8", out=tmp_path / "r")
    for number in range(8):
        for name in "ab":
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (20 + number, 24), (9 * number, 0, 0))
            image.save(tmp_path / "photos" / name / f"{number}.png")
    with pytest.raises(PreceptorError, match=r"differ in size; .*--image-size 224"):
        run(zoo, tmp_path / "photos", student="cnn-4", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def factory() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def test_teachers_with_code_of_their_own_are_used_where_it_is_trusted(tmp_path):
    zoo = Zoo(str(tmp_path / "zoo"))
    vectors = {"input_size": [12], "mean": [0.0] * 12, "std": [1.0] * 12}
    source = "python:tests.test_pipeline:factory"
    zoo.add(source, name="own", classes=list("xyz"), preprocessing=vectors, trust_code=True)
    shared = {"student": "mlp-8", "report": False, "method": "sinkhorn", **RECIPE}
    with pytest.raises(PreceptorError, match="say --trust-code"):
        run(zoo, blobs("ab"), out=tmp_path / "a", **shared)
    result = run(zoo, blobs("ab"), out=tmp_path / "b", trust_code=True, **shared)
    assert [trial.teacher for trial in result.trials] == [None, "own"]


@pytest.fixture
def no_training(monkeypatch):
    """Nothing may be trained; the ranking may run."""
    monkeypatch.setattr("preceptor.pipeline.trials.train", lambda *_, **__: pytest.fail("a training began"))


def test_a_zoo_without_a_teacher_for_the_method_is_told_before_the_ranking(
    zoo, tmp_path, monkeypatch, no_training
):
    monkeypatch.setattr("preceptor.pipeline.rank", lambda *_, **__: pytest.fail("the ranking began"))
    whole = {"student": "mlp-8", "out": tmp_path / "r", **RECIPE}
    with pytest.raises(
        PreceptorError, match=r"all 2 teachers .*only the student has m, n, .*such as sinkhorn"
    ):
        run(zoo, blobs("mn"), method="kd", **whole)
    with pytest.raises(PreceptorError, match="compares feature maps and the student gives none"):
        run(zoo, blobs("abcd"), method="fitnet", **whole)
    with pytest.raises(PreceptorError, match="method none takes no teacher"):
        run(zoo, blobs("abcd"), method="none", **whole)
    with pytest.raises(PreceptorError, match="'generation' is neither"):
        run(zoo, blobs("abcd"), method="ban", generation=2, **whole)
    with pytest.raises(PreceptorError, match="fraction"):
        run(zoo, blobs("abcd"), validation=1.5, **whole)
    assert not (tmp_path / "r").exists()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("preceptor.pipeline.check_can_write", refuse)
    with pytest.raises(PermissionError):
        run(zoo, blobs("abcd"), **whole)


def test_a_leader_that_the_method_cannot_use_is_told_before_any_training(zoo, tmp_path, no_training):
    with pytest.raises(
        PreceptorError, match=r"^same leads the ranking and does not fit: .*distil from one .*: other$"
    ):
        run(zoo, named(blobs("abcd"), "wxyz"), method="kd", student="mlp-8", out=tmp_path / "r", **RECIPE)


def named(task: Task, classes: str) -> Task:
    """The same samples with other names."""
    return Task.from_splits(task.train, task.test, list(classes))


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
