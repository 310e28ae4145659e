from __future__ import annotations

import json
from dataclasses import replace

import pytest

from preceptor import run
from preceptor.core import PreceptorError
from preceptor.distill.recipe import RECIPES
from preceptor.distill.schedules import distill
from preceptor.pipeline.trials import Attempt, Way, choose_methods, choose_recipe, further_samples, in_order
from tests.pipeline.blobs import blobs


@pytest.mark.parametrize(
    ("per_class", "recipe", "options", "expected"),
    [(99, None, {}, "patient"), (100, None, {}, "mixed"), (24, "adamw", {}, "adamw"), (24, "mixed", {}, "mixed"),
     (24, None, {"mixup": 0.5}, "small"), (100, None, {"mixup": 0.5}, "small"), (24, None, {"epochs": 3}, "mixed"),
     (24, None, {"mixup_until": 0.5}, "patient"), (100, None, {"mixup_until": 0.7}, "mixed"),
     (100, None, {"epochs": 3}, "mixed"), (24, None, {"weight": 3.0}, "patient")],
)  # fmt: skip
def test_the_recipe_goes_by_the_number_of_labels(per_class, recipe, options, expected):
    told, chosen = choose_recipe(recipe, blobs("ab", per_class=per_class), options)
    assert chosen == expected
    begins = {
        "patient": f"{per_class} training vectors a class are few: students train by the patient recipe (",
        "mixed": "students train by the mixed recipe (vectors mixed up at first, later as they are); ",
    }
    assert len(told) == (recipe is None and chosen in begins)
    assert all(sentence.startswith(begins[chosen]) for sentence in told)


def test_one_label_a_class_is_told_in_the_singular():
    (told,), _ = choose_recipe(None, blobs("ab", per_class=1), {})
    assert told.startswith("1 training vector a class is few: ")


def test_a_single_unlabelled_sample_that_judges_is_told_in_the_singular():
    held, way = blobs("ab").train.select([0]), Way.of("kd", "small", {}, "mlp-8", blobs("ab"))
    with pytest.raises(PreceptorError, match=r"^the only unlabelled sample is among those held out"):
        further_samples(held, [way], blobs("ab"), held)


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [(None, {}, ("sinkhorn", "sinkhorn+probe")), (None, {"lr": 0.1}, ("sinkhorn", "sinkhorn+probe")),
     (None, {"weight": 3.0}, ("sinkhorn",)), (None, {"probe_weight": 3.0, "lr": 0.1}, ("sinkhorn+probe",)),
     (None, {"wieght": 3.0}, ("sinkhorn",)), (None, {"prob_weight": 3.0}, ("sinkhorn+probe",)),
     (None, {"probe_weight": 1, "wieght": 2}, ("sinkhorn+probe",)),
     ("kd", {}, ("kd",)), (["rkd", "kd", "rkd"], {}, ("rkd", "kd"))],
)  # fmt: skip
def test_two_methods_are_tried_where_nothing_is_asked_for(method, options, expected):
    said, chosen = choose_methods(method, options)
    assert chosen == expected
    assert bool(said) == (method is None and len(expected) == 2)


@pytest.mark.parametrize(
    ("known", "expected"),
    [("abcd", ["sinkhorn", "kd", "sinkhorn+probe"]), ("abcx", ["sinkhorn+probe", "sinkhorn", "kd"])],
)
def test_the_method_that_suits_the_teacher_comes_first_and_wins_ties(known, expected):
    ways = [Way(name, None, None) for name in ("sinkhorn", "kd", "sinkhorn+probe")]
    assert [way.method for way in in_order(ways, known, "abcd")] == expected


@pytest.mark.parametrize("patiently", [True, False])
def test_beside_a_patient_plain_student_a_mixed_one_is_trained_and_the_better_counts(
    zoo, tmp_path, monkeypatch, patiently
):
    quick = {"student": "mlp-8", "device": "cpu", "report": False, "batch_size": 32, "method": "sinkhorn"}
    epochs = {"patient": 20, "mixed": 1} if patiently else {"patient": 1, "mixed": 20}
    for name, count in epochs.items():
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=count, min_steps=0))
    said: list[str] = []
    result = run(zoo, blobs("abcd", seed=7), out=tmp_path / "r", notify=said.append, **quick)
    assert "24 training vectors a class are few" in said[0]
    assert any("(twice: by the recipes patient and mixed)" in sentence for sentence in said)
    patient, mixed = (
        json.loads((tmp_path / "r" / name / "result.json").read_text())["accuracy"]
        for name in ("plain", "plain-mixed")
    )
    configs = [
        json.loads((tmp_path / "r" / name / "config.json").read_text())["recipe"]
        for name in ("plain", "plain-mixed", "from-same")
    ]
    assert [(one["mixup"], one["mixup_until"]) for one in configs] == [(1.0, 0.75), (1.0, 0.5), (1.0, 0.75)]
    assert result.trials[0].teacher is None
    assert (patient > mixed) == patiently
    assert result.trials[0].validation_accuracy == max(patient, mixed)
    assert result.config["plain"] == {"plain": patient, "plain-mixed": mixed}
    told = any("without a teacher the mixed recipe is better" in sentence for sentence in result.verdict)
    assert told != patiently


def test_without_stop_no_training_of_a_method_holds_labels_back(zoo, tmp_path):
    call = {
        "student": "mlp-8", "device": "cpu", "report": False, "method": "refilled", "refit": True,
        "recipe": "quick", "batch_size": 32, "epochs": 3, "validation": 0.25, "rank_options": {"teachers": ["same"]},
        "embedding_options": {"patience": 2, "epochs": 12, "lr": 0.0},
    }  # fmt: skip
    result = run(zoo, blobs("abcd", seed=7, noise=0.2), out=tmp_path / "r", **call)
    taught = result.trials[1]
    first = taught.result.stages[0]
    assert first.epochs < len(first.history) < 12, "it stopped early, so that there is something to see"
    attempt = Attempt("a", "same", "refilled", distill, call)
    last = attempt.without_stop(taught.result).options["embedding_options"]
    assert last == {"patience": 0, "epochs": first.epochs, "min_steps": 0, "lr": 0.0}
    plain = Attempt("a", None, "none", distill, {"epochs": 3})
    assert plain.without_stop(taught.result).options == {"epochs": 3}
