"""`rank` on a zoo with good, bad, broken, huge and odd teachers."""

import json
from pathlib import Path

import numpy as np
import torch

from preceptor.core import Ranking
from preceptor.data import Task
from preceptor.metrics import METRICS
from preceptor.rank import rank
from preceptor.rank.students import STUDENT_METRICS
from tests.rank import teachers
from tests.rank.conftest import GOOD


def test_good_teachers_are_ranked_and_the_others_stand_at_the_end_with_their_reasons(zoo, task, odd):
    odd("nan")
    seen = []
    ranking = rank(
        zoo,
        task,
        ["sinkhorn", "logme"],
        memory_limit="6MB",
        trust_code=True,
        on_row=lambda row: seen.append(row.name),
    )
    assert [row.name for row in ranking.rows[:4]] == sorted(
        GOOD, key=lambda n: -ranking[n].scores["sinkhorn"]
    )
    assert [row.rank for row in ranking.rows] == [1, 2, 3, 4, None, None, None]
    assert [row.name for row in ranking.rows[4:]] == ["broken", "huge", "odd"]
    assert "not the file that was added" in ranking["broken"].reasons["teacher"]
    assert "above the limit of 6.0 MB; raise --memory-limit" in ranking["huge"].reasons["teacher"]
    assert "gives numbers that are not finite for sample number 0" in ranking["odd"].reasons["teacher"]
    assert sorted(seen) == sorted(zoo.names())
    assert ranking.best == f"{zoo.url}/same"


def test_the_row_says_what_people_ask_for(zoo, task):
    ranking = rank(zoo, task, ["sinkhorn", "leep"], teachers=GOOD)
    row = ranking["same"]
    assert 0.9 < row.details["probe_accuracy"] <= 1
    assert row.details["transport_cost"] > 0
    assert row.details["centers_source"] == "classifier"
    assert row.forward_seconds > 0
    assert set(row.metric_seconds) == {"sinkhorn", "leep"}
    # A teacher of the same classes feeds each class mostly from its namesake.
    best = {pair["task"]: pair["teacher"] for pair in reversed(row.details["class_pairs"])}
    assert all(name == fed for name, fed in best.items())
    assert all(0.2 < pair["share"] <= 1 for pair in row.details["class_pairs"])
    correspondence = row.details["correspondence"]
    assert np.shape(correspondence["cost"]) == np.shape(correspondence["plan"]) == (5, 5)
    np.testing.assert_allclose(np.sum(correspondence["plan"]), 1, atol=1e-3)
    assert correspondence["task_classes"] == list(task.classes)
    assert ["correspondence" in row.details for row in ranking.rows] == [True, True, True, False]


def test_a_ranking_is_json_with_its_evidence(zoo, task):
    ranking = rank(zoo, task, ["sinkhorn", "logme", "leep"], teachers=GOOD, seed=7)
    assert json.loads(ranking.to_json())["schema_version"] == 1
    again = Ranking.from_json(ranking.to_json())
    assert json.loads(again.to_json()) == json.loads(ranking.to_json())
    assert ranking.task["samples"] == len(task.train)
    assert ranking.task["fingerprint"] == task.fingerprint
    assert ranking.evidence["seed"] == 7
    assert torch.__version__.startswith(ranking.evidence["versions"]["torch"])
    assert ranking.evidence["seconds"] > 0
    assert ranking.agreement["sinkhorn"]["logme"] == ranking.agreement["logme"]["sinkhorn"]
    assert -1 <= ranking.agreement["sinkhorn"]["leep"] <= 1


def test_every_metric_orders_same_over_overlapping_over_random(zoo, task):
    ranking = rank(zoo, task, "all", teachers=GOOD)
    for metric in METRICS.keys() - set(STUDENT_METRICS):
        scores = {row.name: row.scores[metric] for row in ranking.rows}
        assert scores["same"] > scores["overlap"] > scores["random"], metric


def test_scores_are_those_of_the_metrics_on_the_teachers_tensors(zoo, task):
    row = rank(zoo, task, ["sinkhorn", "knn", "leep"], teachers=["overlap"]).rows[0]
    teacher = zoo.load("overlap")
    inputs = teacher.preprocessing.apply(task.train.load(np.arange(len(task.train))))
    output = teacher.outputs(inputs)
    for metric, score in row.scores.items():
        direct = METRICS[metric](
            features=output.features,
            labels=task.train.labels,
            logits=output.logits,
            classifier=teacher.classifier,
        )
        np.testing.assert_allclose(score, direct, rtol=1e-4)


def test_options_reach_their_metric(zoo, task):
    plain = rank(zoo, task, ["sinkhorn"], teachers=["same"])
    other = rank(zoo, task, ["sinkhorn"], teachers=["same"], options={"sinkhorn": {"epsilon": 0.5}})
    assert plain.rows[0].scores != other.rows[0].scores


def test_a_metric_that_lacks_something_gives_a_reason_and_the_others_go_on(zoo, task, monkeypatch):
    def demanding(*, features, labels, oracle, **_unused):
        return 1.0

    monkeypatch.setitem(METRICS, "demanding", demanding)
    row = rank(zoo, task, ["sinkhorn", "demanding"], teachers=["same"]).rows[0]
    assert row.rank == 1
    assert row.reasons == {"demanding": "needs oracle, which this teacher does not have"}
    assert "demanding" not in row.scores


def test_a_metric_without_a_number_gives_a_reason(zoo, task, monkeypatch):
    monkeypatch.setitem(METRICS, "hollow", lambda *, features, **_unused: float("nan"))
    row = rank(zoo, task, ["leep", "hollow"], by="hollow", teachers=["same"]).rows[0]
    assert row.rank is None
    assert row.reasons["hollow"] == "gave nan instead of a score"


def test_one_class_of_one_sample_is_survived(zoo):
    x, y = teachers.digits()
    rows = np.concatenate([np.flatnonzero(y == 0)[:30], np.flatnonzero(y == 1)[:1]])
    task = Task.from_arrays(x[rows], y[rows], x[rows], y[rows], ["zero", "one"])
    ranking = rank(zoo, task, "all", teachers=["same", "random"])
    assert all(row.rank for row in ranking.rows)


def test_a_stored_teacher_of_one_class_has_no_rank(own_zoo, task):
    path = Path(own_zoo.url) / "random" / "card.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": ["price"]}))
    found = rank(own_zoo, task, ["sinkhorn"], teachers=["same", "random"])
    assert found["same"].rank == 1
    assert found["random"].reasons["teacher"].startswith("the card of 'random' is not valid")
    assert "1 class came; a teacher tells 2 or more apart" in found["random"].reasons["teacher"]
