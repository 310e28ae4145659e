"""A ranking from a part of the data: how sure its order is, and whom the pre-filter rules out."""

import pytest

from preceptor.rank import rank
from tests.rank import teachers
from tests.rank.conftest import GOOD


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


def test_the_pre_filter_keeps_the_winner_and_explains_the_others(own_zoo, task, tmp_path):
    names = list(GOOD)
    for seed in range(6):
        teachers.add(own_zoo, f"random{seed}", range(5, 10), tmp_path, steps=0, seed=20 + seed)
        names.append(f"random{seed}")
    ranking = rank(own_zoo, task, ["leep"], teachers=names, prefilter=True)
    assert ranking.rows[0].name == "same"
    out = [row for row in ranking.rows if row.rank is None]
    assert out
    assert all("ruled out by the pre-filter in round 1" in row.reasons["teacher"] for row in out)
    record = ranking.evidence["prefilter"]
    assert record["rounds"][0] == {"samples": 96, "entered": 10, "ruled_out": len(out)}
    assert 0 < record["saved_fraction"] < 1
