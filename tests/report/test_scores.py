"""A score that is a log-probability is shown as the probability as well, beside that of guessing."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from preceptor.core import Ranking
from preceptor.report import read_story
from preceptor.report.correspondence import Correspondence
from preceptor.report.figures import flow_chart
from preceptor.report.page import render


@pytest.fixture
def by_bridge(ranking: Ranking) -> Ranking:
    """The same teachers, scored by bridge as well, which decides."""
    rows = [
        replace(row, scores={**row.scores, "bridge": score} if row.scores else {})
        for row, score in zip(ranking.rows, (-0.5, -1.0, None), strict=True)
    ]
    task = {**ranking.task, "classes": ["0", "1", "2", "5"]}
    return replace(ranking, metric="bridge", rows=tuple(rows), task=task)


def test_bridge_is_told_as_a_probability(by_bridge: Ranking) -> None:
    page = render(read_story(by_bridge))
    assert re.search(r"<span>-0\.5 <small>\(60\.7 %\)</small>", page)  # exp(-0.5)
    assert re.search(r"<span>-1 <small>\(36\.8 %\)</small>", page)
    assert "(a geometric mean; guessing has 25 %)." in page
    assert page.count("%)</small>") == 2, "no other metric's score is a probability"


def test_the_metric_that_decides_has_the_first_column(by_bridge: Ranking) -> None:
    heads = re.findall(r'<th scope="col"[^>]*><button type="button">([^<]*)', render(read_story(by_bridge)))
    assert heads[:5] == ["#", "teacher", "bridge", "sinkhorn", "logme"]


def test_without_bridge_or_class_names_nothing_is_said_of_them(by_bridge: Ranking, ranking: Ranking) -> None:
    assert "log-probability" not in render(read_story(ranking))
    unnamed = render(read_story(replace(by_bridge, task={})))
    assert "(a geometric mean)." in unnamed
    assert "guessing" not in unnamed


def test_flows_of_a_class_end_around_its_name() -> None:
    plan = np.random.default_rng(0).uniform(0.5, 1.0, (5, 2))
    chart = flow_chart(Correspondence("t", tuple("abcde"), ("x", "y"), plan, plan / plan.sum()), {})
    for name in ("x", "y"):
        bands = [
            (float(end), float(thick))
            for end, thick, to in re.findall(
                r',([\d.]+)" stroke="[^"]*" stroke-width="([\d.]+)"[^>]*data-to="(.)"', chart
            )
            if to == name
        ]
        assert len(bands) == 3
        middle = (min(e - t / 2 for e, t in bands) + max(e + t / 2 for e, t in bands)) / 2
        written = float(re.search(rf'y="([\d.]+)">{name}</text>', chart).group(1))
        assert middle + 4 == pytest.approx(written, abs=0.2)
