from __future__ import annotations

import json

import numpy as np
from experiments.book import Book
from experiments.items import tab13
from experiments.jobs import SMOKE

from experiments import results
from preceptor.metrics import METRICS
from preceptor.metrics.scatter import _latest, forget


def test_no_run_finds_what_another_has_computed():
    chance = np.random.default_rng(0)
    given = {"features": chance.normal(size=(60, 4)).astype(np.float32), "labels": np.arange(60) % 3}
    shared = []

    def call():
        shared.append(bool(_latest))
        return METRICS["hscore"](**given)

    forget()
    seconds, score = tab13.timed(call)
    assert _latest, "the metric shares nothing, so this test could not fail"
    assert shared == [False] * (1 + tab13.REPEATS)
    assert len(seconds) == tab13.REPEATS
    assert score == METRICS["hscore"](**given)


def test_rows_of_another_protocol_are_superseded(lab, monkeypatch, tmp_path):
    path = lab.results / "tab13.jsonl"
    spec = SMOKE.teacher(tab13.DATA, tab13.TEACHERS[tab13.DATA])
    old = {
        "metric": "nce",
        "teacher": spec.name,
        "seconds": [9.0] * 3,
        "samples": 1,
        "features": 1,
        "threads": 1,
    }
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(old) + "\n")
    assert "9.000" not in tab13.section(Book(lab.results, SMOKE), tmp_path)
    monkeypatch.setattr(tab13, "METRICS", {"nce": METRICS["nce"]})
    for _ in range(2):  # the second time there is nothing to do
        tab13.measure(lab)
        assert [row.get("protocol") for row in results.read(path)] == [None, tab13.PROTOCOL]
    shown = tab13.section(Book(lab.results, SMOKE), tmp_path)
    assert "| nce | 0.12 | 0.00" in shown
    assert "load of the machine" in shown
