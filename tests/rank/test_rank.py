"""`rank` on a zoo with good, bad, broken, huge and odd teachers."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError, Ranking
from preceptor.data import Task
from preceptor.metrics import METRICS
from preceptor.rank import rank
from preceptor.rank.assess import Assessor
from preceptor.rank.students import STUDENT_METRICS
from preceptor.rank.tensors import load_tensors
from preceptor.zoo import Zoo
from tests.rank import teachers

GOOD = ["same", "overlap", "disjoint", "random"]


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
    bridge = row.details["bridge"]
    assert np.shape(bridge["cost"]) == np.shape(bridge["plan"]) == (5, 5)
    np.testing.assert_allclose(np.sum(bridge["plan"]), 1, atol=1e-3)
    assert bridge["task_classes"] == list(task.classes)
    assert ["bridge" in row.details for row in ranking.rows] == [True, True, True, False]


def test_a_ranking_is_json_with_its_evidence(zoo, task):
    ranking = rank(zoo, task, ["sinkhorn", "logme", "leep"], teachers=GOOD, seed=7)
    again = Ranking.from_json(ranking.to_json())
    assert json.loads(again.to_json()) == json.loads(ranking.to_json())
    assert ranking.task["samples"] == len(task.train)
    assert ranking.task["fingerprint"] == task.fingerprint
    assert ranking.evidence["seed"] == 7
    assert torch.__version__.startswith(ranking.evidence["versions"]["torch"])
    assert ranking.evidence["seconds"] > 0
    assert ranking.agreement["sinkhorn"]["logme"] == ranking.agreement["logme"]["sinkhorn"]
    assert -1 <= ranking.agreement["sinkhorn"]["leep"] <= 1


UNSOUND: set[str] = set()


def test_every_sound_metric_orders_same_over_overlapping_over_random(zoo, task):
    ranking = rank(zoo, task, "all", teachers=GOOD)
    for metric in METRICS.keys() - UNSOUND - set(STUDENT_METRICS):
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


class TestResuming:
    def count_loads(self, monkeypatch) -> list[str]:
        """The teachers whose tensors were asked for since."""
        asked: list[str] = []

        def noting(zoo, card, task, **more):
            asked.append(card.name)
            return load_tensors(zoo, card, task, **more)

        monkeypatch.setattr("preceptor.rank.assess.load_tensors", noting)
        return asked

    def test_a_second_ranking_loads_nothing_and_says_the_same(self, zoo, task, monkeypatch):
        first = rank(zoo, task, ["sinkhorn", "leep"], teachers=GOOD)
        loads = self.count_loads(monkeypatch)
        again = rank(zoo, task, ["sinkhorn", "leep"], teachers=GOOD)
        assert again.rows == first.rows
        assert loads == []

    def test_one_more_teacher_costs_one_teacher(self, zoo_folder, task, tmp_path, monkeypatch):
        shutil.copytree(zoo_folder, tmp_path / "zoo")
        zoo = Zoo(tmp_path / "zoo")
        rank(zoo, task, teachers=GOOD)
        teachers.add(zoo, "newcomer", range(5), tmp_path, seed=9)
        loads = self.count_loads(monkeypatch)
        ranking = rank(zoo, task, teachers=[*GOOD, "newcomer"])
        assert loads == ["newcomer"]
        assert all(row.rank for row in ranking.rows)

    def test_an_interrupted_ranking_goes_on_where_it_stopped(self, zoo, task, monkeypatch):
        def stop(row):
            if row.name == "overlap":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            rank(zoo, task, teachers=GOOD, on_row=stop)
        loads = self.count_loads(monkeypatch)
        rank(zoo, task, teachers=GOOD)
        assert loads == ["disjoint", "random"]

    def test_one_more_metric_costs_that_metric_on_the_cached_tensors(self, zoo, task, monkeypatch):
        first = rank(zoo, task, ["sinkhorn"], teachers=["same"]).rows[0]
        monkeypatch.setattr("preceptor.rank.measure.sinkhorn_assessment", None)
        row = rank(zoo, task, ["sinkhorn", "leep"], teachers=["same"]).rows[0]
        assert row.scores["sinkhorn"] == first.scores["sinkhorn"]
        assert "leep" in row.scores

    def test_cached_features_spare_the_teacher(self, zoo, task, monkeypatch):
        rank(zoo, task, ["leep"], teachers=["same"])
        monkeypatch.setattr(Zoo, "load", None)
        assert "sinkhorn" in rank(zoo, task, ["sinkhorn"], teachers=["same"]).rows[0].scores

    def test_without_resume_everything_is_computed_again(self, zoo, task, monkeypatch):
        rank(zoo, task, teachers=["same"])
        loads = self.count_loads(monkeypatch)
        rank(zoo, task, teachers=["same"], resume=False)
        assert loads == ["same"]

    def test_another_task_another_option_and_other_weights_are_other_entries(
        self, zoo, task, tmp_path, monkeypatch
    ):
        rank(zoo, task, teachers=["same"])
        loads = self.count_loads(monkeypatch)
        rank(zoo, teachers.digits_task(samples=300), teachers=["same"])
        rank(zoo, task, teachers=["same"], options={"sinkhorn": {"temperature": 2.0}})
        other = Zoo(tmp_path / "other")
        teachers.add(other, "same", range(5), tmp_path, seed=11)
        rank(other, task)
        assert loads == ["same"] * 3

    def test_a_failure_is_not_remembered(self, zoo, task, odd, monkeypatch):
        odd("nan")
        assert rank(zoo, task, teachers=["same", "odd"], trust_code=True)["odd"].rank is None
        monkeypatch.setenv("ODD_TEACHERS", "/nonexistent")
        assert rank(zoo, task, teachers=["same", "odd"], trust_code=True)["odd"].rank is not None

    def test_trust_in_code_is_not_remembered(self, zoo, task):
        names = ["same", "odd"]
        assert rank(zoo, task, teachers=names, trust_code=True)["odd"].rank is not None
        untrusted = rank(zoo, task, teachers=names)["odd"]
        assert untrusted.rank is None
        assert "say --trust-code" in untrusted.reasons["teacher"]
        assert rank(zoo, task, teachers=names, trust_code=True)["odd"].rank is not None

    def test_a_damaged_entry_is_computed_again(self, zoo, task, own_cache):
        first = rank(zoo, task, teachers=["same"])
        for path in (own_cache / "rankings").rglob("*.json"):
            path.write_text('{"scores": ')
        assert rank(zoo, task, teachers=["same"]).rows[0].scores == first.rows[0].scores

    def test_a_change_of_the_code_makes_entries_unfindable(self, zoo, task, monkeypatch):
        rank(zoo, task, teachers=["same"])
        monkeypatch.setattr("preceptor.rank.journal.code_version", lambda: "another")
        assert Assessor(zoo, task, _plan(("sinkhorn",))).recall("same") is None


def _plan(metrics):
    import os

    from preceptor.rank.assess import Plan

    return Plan(metrics=metrics, cache=os.environ["PRECEPTOR_CACHE"])


def test_a_hanging_teacher_is_ended_at_its_timeout_and_the_rest_goes_on(zoo, task, odd):
    odd("hang")
    ranking = rank(zoo, task, teachers=["odd", "random", "same"], timeout=4, trust_code=True)
    assert ranking["odd"].reasons["teacher"] == "took longer than the timeout of 4 s"
    assert [row.name for row in ranking.rows[:2]] == ["same", "random"]


def test_a_timeout_changes_no_digit(zoo, task):
    here = rank(zoo, task, ["sinkhorn", "logme"], teachers=GOOD[:2])
    there = rank(zoo, task, ["sinkhorn", "logme"], teachers=GOOD[:2], timeout=100, resume=False)
    assert [row.scores for row in here.rows] == [row.scores for row in there.rows]


def test_a_sample_says_how_sure_the_order_is(zoo, task):
    ranking = rank(zoo, task, teachers=GOOD, sample=120, seed=1)
    assert ranking.task["samples"] == 120
    assert ranking.task["of"] == 400
    assert set(ranking.confidence) == set(GOOD)
    assert ranking.confidence["same"] > 0.9
    assert sum(ranking.confidence.values()) == pytest.approx(1)
    assert "bootstrap" in ranking.evidence["confidence"]
    assert rank(zoo, task, teachers=GOOD).confidence is None


def test_confidence_for_a_metric_that_is_no_mean(zoo, task):
    ranking = rank(zoo, task, ["logme"], teachers=GOOD, confidence=True)
    assert ranking.confidence["same"] > 0.5
    assert "40 random halves" in ranking.evidence["confidence"]


def test_the_pre_filter_keeps_the_winner_and_explains_the_others(zoo_folder, tmp_path):
    shutil.copytree(zoo_folder, tmp_path / "zoo")
    zoo = Zoo(tmp_path / "zoo")
    names = list(GOOD)
    for seed in range(6):
        teachers.add(zoo, f"random{seed}", range(5, 10), tmp_path, steps=0, seed=20 + seed)
        names.append(f"random{seed}")
    task = teachers.digits_task()
    ranking = rank(zoo, task, ["leep"], teachers=names, prefilter=True)
    assert ranking.rows[0].name == "same"
    out = [row for row in ranking.rows if row.rank is None]
    assert out
    assert all("ruled out by the pre-filter in round 1" in row.reasons["teacher"] for row in out)
    record = ranking.evidence["prefilter"]
    assert record["rounds"][0] == {"samples": 96, "entered": 10, "ruled_out": len(out)}
    assert 0 < record["saved_fraction"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": ["sinkorn"]}, "no metric 'sinkorn'; did you mean 'sinkhorn'?"),
        ({"metrics": []}, "no metric was named"),
        ({"by": "logme"}, "cannot rank by 'logme': it is not among the metrics bridge, sinkhorn"),
        ({"engine": "spark"}, "no engine 'spark'; there are local and ray"),
        ({"teachers": ["sam"]}, "no teacher 'sam' in .*; near are same"),
        ({"options": {"leep": {}}}, "options for 'leep', which is not among the metrics bridge, sinkhorn"),
        (
            {"options": {"bridge": {"epsilom": 1.0}}},
            "'bridge' has no option 'epsilom'; it has epsilon, temperature",
        ),
        ({"memory_limit": "lots"}, "memory limit 'lots' is no size; write it as 800M or 4GB"),
    ],
)
def test_mistakes_are_explained_before_anything_starts(zoo, task, arguments, message):
    with pytest.raises(PreceptorError, match=message):
        rank(zoo, task, **arguments)


def test_an_empty_zoo_is_a_mistake(task, tmp_path):
    (tmp_path / "zoo").mkdir()
    with pytest.raises(PreceptorError, match="holds no teacher"):
        rank(str(tmp_path / "zoo"), task)


def test_no_teacher_ranked_is_said_when_the_best_is_asked_for(zoo, task):
    ranking = rank(zoo, task, teachers=["broken"])
    with pytest.raises(PreceptorError, match="no teacher could be ranked by bridge"):
        _ = ranking.best


def test_one_class_of_one_sample_is_survived(zoo):
    x, y = teachers.digits()
    rows = np.concatenate([np.flatnonzero(y == 0)[:30], np.flatnonzero(y == 1)[:1]])
    task = Task.from_arrays(x[rows], y[rows], x[rows], y[rows], ["zero", "one"])
    ranking = rank(zoo, task, "all", teachers=["same", "random"])
    assert all(row.rank for row in ranking.rows)


def test_a_cache_that_cannot_be_written_is_told_once(zoo, task, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        PreceptorError, match=r"^the cache in .*file/features cannot be written .*PRECEPTOR_CACHE"
    ):
        rank(zoo, task, teachers=GOOD, cache=str(tmp_path / "file"))


def test_a_cache_that_can_only_be_read_is_enough_where_all_is_known(zoo, task, tmp_path, monkeypatch):
    known = rank(zoo, task, teachers=GOOD, cache=str(tmp_path / "c"))

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("preceptor.zoo.cache.check_can_write", refuse)
    again = rank(zoo, task, teachers=GOOD, cache=str(tmp_path / "c"))
    assert [row.scores for row in again.rows] == [row.scores for row in known.rows]
    with pytest.raises(PreceptorError, match=r"cannot be written \(Permission denied\)"):
        rank(zoo, task, "logme", teachers=GOOD, cache=str(tmp_path / "c"))
