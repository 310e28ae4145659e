"""What was computed once is not computed again, and is found only where it is the same."""

import errno
import os

import pytest

from preceptor.core import PreceptorError
from preceptor.rank import rank
from preceptor.rank.assess import Assessor, Plan
from preceptor.rank.tensors import load_tensors
from preceptor.zoo import Zoo
from tests.rank import teachers
from tests.rank.conftest import GOOD


def count_loads(monkeypatch) -> list[str]:
    """The teachers whose tensors were asked for since."""
    asked: list[str] = []

    def noting(zoo, card, task, **more):
        asked.append(card.name)
        return load_tensors(zoo, card, task, **more)

    monkeypatch.setattr("preceptor.rank.assess.load_tensors", noting)
    return asked


def test_a_second_ranking_loads_nothing_and_says_the_same(zoo, task, monkeypatch):
    first = rank(zoo, task, ["sinkhorn", "leep"], teachers=GOOD)
    loads = count_loads(monkeypatch)
    again = rank(zoo, task, ["sinkhorn", "leep"], teachers=GOOD)
    assert again.rows == first.rows
    assert loads == []


def test_one_more_teacher_costs_one_teacher(own_zoo, task, tmp_path, monkeypatch):
    rank(own_zoo, task, teachers=GOOD)
    teachers.add(own_zoo, "newcomer", range(5), tmp_path, seed=9)
    loads = count_loads(monkeypatch)
    ranking = rank(own_zoo, task, teachers=[*GOOD, "newcomer"])
    assert loads == ["newcomer"]
    assert all(row.rank for row in ranking.rows)


def test_an_interrupted_ranking_goes_on_where_it_stopped(zoo, task, monkeypatch):
    def stop(row):
        if row.name == "overlap":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rank(zoo, task, teachers=GOOD, on_row=stop)
    loads = count_loads(monkeypatch)
    rank(zoo, task, teachers=GOOD)
    assert loads == ["disjoint", "random"]


def test_one_more_metric_costs_that_metric_on_the_cached_tensors(zoo, task, monkeypatch):
    first = rank(zoo, task, ["sinkhorn"], teachers=["same"]).rows[0]
    monkeypatch.setattr("preceptor.rank.measure.sinkhorn_assessment", None)
    row = rank(zoo, task, ["sinkhorn", "leep"], teachers=["same"]).rows[0]
    assert row.scores["sinkhorn"] == first.scores["sinkhorn"]
    assert "leep" in row.scores


def test_cached_features_spare_the_teacher(zoo, task, monkeypatch):
    rank(zoo, task, ["leep"], teachers=["same"])
    monkeypatch.setattr(Zoo, "load", None)
    assert "sinkhorn" in rank(zoo, task, ["sinkhorn"], teachers=["same"]).rows[0].scores


def test_without_resume_everything_is_computed_again(zoo, task, monkeypatch):
    rank(zoo, task, teachers=["same"])
    loads = count_loads(monkeypatch)
    rank(zoo, task, teachers=["same"], resume=False)
    assert loads == ["same"]


def test_another_task_another_option_and_other_weights_are_other_entries(zoo, task, tmp_path, monkeypatch):
    rank(zoo, task, teachers=["same"])
    loads = count_loads(monkeypatch)
    rank(zoo, teachers.digits_task(samples=300), teachers=["same"])
    rank(zoo, task, teachers=["same"], options={"sinkhorn": {"temperature": 2.0}})
    other = Zoo(tmp_path / "other")
    teachers.add(other, "same", range(5), tmp_path, seed=11)
    rank(other, task)
    assert loads == ["same"] * 3


def test_a_failure_is_not_remembered(zoo, task, odd, monkeypatch):
    odd("nan")
    assert rank(zoo, task, teachers=["same", "odd"], trust_code=True)["odd"].rank is None
    monkeypatch.setenv("ODD_TEACHERS", "/nonexistent")
    assert rank(zoo, task, teachers=["same", "odd"], trust_code=True)["odd"].rank is not None


def test_trust_in_code_is_not_remembered(zoo, task):
    names = ["same", "odd"]
    assert rank(zoo, task, teachers=names, trust_code=True)["odd"].rank is not None
    untrusted = rank(zoo, task, teachers=names)["odd"]
    assert untrusted.rank is None
    assert "say --trust-code" in untrusted.reasons["teacher"]
    assert rank(zoo, task, teachers=names, trust_code=True)["odd"].rank is not None


def test_a_damaged_entry_is_computed_again(zoo, task, own_cache):
    first = rank(zoo, task, teachers=["same"])
    (entry,) = (own_cache / "rankings").rglob("*.json")
    entry.write_text('{"scores": ')
    assert rank(zoo, task, teachers=["same"]).rows[0].scores == first.rows[0].scores


def test_a_change_of_the_code_makes_entries_unfindable(zoo, task, own_cache, monkeypatch):
    rank(zoo, task, teachers=["same"])
    plan = Plan(metrics=("sinkhorn",), cache=str(own_cache))
    assert Assessor(zoo, task, plan).recall("same") is not None
    monkeypatch.setattr("preceptor.rank.journal.code_version", lambda: "another")
    assert Assessor(zoo, task, plan).recall("same") is None


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
