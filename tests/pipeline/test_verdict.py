from __future__ import annotations

from types import SimpleNamespace

import pytest

from preceptor import Zoo, run, train
from preceptor.core import Ranking, RankingRow
from preceptor.pipeline.verdict import no_better_than_nothing, ranked_sentence, still_to_come
from preceptor.rank.reference import untrained_score
from tests.pipeline.blobs import RECIPE, blobs


@pytest.mark.parametrize(("score", "said"), [(-1.37, "hardly better"), (-1.39, "no better"), (-1.3, None)])
def test_what_is_said_about_scores_near_chance(zoo, score, said):
    task = blobs("abcd")
    row = RankingRow(name="same", rank=1, scores={"bridge": score})
    told = no_better_than_nothing(zoo, task, Ranking(metric="bridge", rows=(row,)), ["same"], "cpu", False)
    assert [said in sentence for sentence in told] == ([] if said is None else [True])


def test_a_teacher_that_could_not_be_assessed_is_named_with_its_reason():
    best, slow, mine, theirs = (
        RankingRow("best", 1, {"bridge": -0.1}),
        RankingRow("slow", 2, {"bridge": -0.2}),
        RankingRow("mine", None, {}, {"teacher": "it needs --trust-code"}),
        RankingRow("theirs", None, {}, {"teacher": "it is broken"}),
    )
    said = [
        ranked_sentence(Ranking(metric="bridge", rows=rows), ["best"])
        for rows in ((best, slow), (best, mine), (best, slow, mine, theirs))
    ]
    assert said == [
        "ranked 2 teachers by bridge; first: best",
        "ranked 1 teacher by bridge; first: best; could not be assessed: mine: it needs --trust-code",
        "ranked 2 teachers by bridge; first: best; could not be assessed: mine: it needs --trust-code; and 1 other",
    ]


@pytest.mark.parametrize(
    ("seconds", "taught", "refit", "said"),
    [([30, 29.6], 2, True, "60 seconds; 2 trainings with a teacher are to come, and one or two on all labels"),
     ([1200, 3], 1, False, "20 minutes; 1 training with a teacher is to come")],
)  # fmt: skip
def test_how_long_it_has_taken_and_what_is_to_come(seconds, taught, refit, said):
    plain = [SimpleNamespace(result=SimpleNamespace(seconds=value)) for value in seconds]
    assert still_to_come(plain, taught, refit) == f"that took {said}"


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
