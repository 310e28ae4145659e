"""Rows are found by their jobs, and the names of what is kept on disk stay what they were."""

from __future__ import annotations

import json

import pytest
from experiments.items import ITEMS, search
from experiments.jobs import PAPER, SMOKE, digest, distillation
from experiments.rows import Rows
from experiments.runner import done

from experiments import results


def job(method="none", **rest):
    return distillation(SMOKE, "trial", "cifar100", "wrn-16-1", method, "wrn-40-2", 0, 0, **rest)


def write(folder, *pairs):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({**one.identity(), "options": one.settings(), "accuracy": value}) for one, value in pairs
    ]
    (folder / "trial.jsonl").write_text("\n".join(lines) + "\n")


def test_a_file_is_read_once_for_all_its_jobs(lab, monkeypatch):
    some = [job(method) for method in ("none", "kd", "rkd", "sinkhorn")]
    write(lab.results, *((one, 0.5) for one in some[:3]))
    read, calls = results.read, []
    monkeypatch.setattr(results, "read", lambda path: calls.append(path.name) or read(path))
    assert list(done(lab, some)) == some[:3]
    assert calls == ["trial.jsonl"]


def test_what_is_done_is_the_row_that_the_page_shows(lab):
    write(lab.results, (job(), 0.5), (job("kd"), 0.1), (job(), 0.7))
    assert done(lab, [job()])[job()] is not None
    assert done(lab, [job()])[job()]["accuracy"] == Rows(lab.results).row(job())["accuracy"] == 0.7


def test_all_trainings_of_a_job_are_found_in_their_order(lab):
    write(lab.results, (job(), 0.5), (job("kd"), 0.1), (job(), 0.7))
    assert [row["accuracy"] for row in Rows(lab.results).trainings(job())] == [0.5, 0.7]
    assert Rows(lab.results).trainings(job("rkd")) == []


def test_a_row_of_other_options_is_not_the_jobs(lab):
    write(lab.results, (job("kd", options={"temperature": 2.0}), 0.5))
    assert not done(lab, [job("kd", options={"temperature": 3.0})])
    assert done(lab, [job("kd", options={"temperature": 2.0})])


# The names of packs at work and of students that wait for their second stage are made of these.
DIGESTS = {
    "fig05": "67da638034d32f91",
    "few": "e59e94f5018ca70d",
    "search": "70765dca51aedc3c",
    "fig06": "6e53fe2cb467a41f",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_jobs_keep_the_names_of_their_files(name):
    found = digest([one.digest() for one in ITEMS[name].jobs(PAPER)])
    assert found == DIGESTS[name], (
        "packs that were put aside begin anew; where that is meant, write it down here"
    )


def test_every_variant_of_the_search_is_planned_or_has_rows():
    rows = {row["variant"] for row in Rows().rows(search.NAME)}
    planned = {one.name for one in search.jobs(PAPER)}
    assert rows | planned == set(search.VARIANTS)
