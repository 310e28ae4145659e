"""Every experiment at its smallest, and the page made from the rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from experiments.book import Book
from experiments.items import ITEMS, fig07
from experiments.jobs import SMOKE

from experiments import report, results, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("smoke")
    left = run.main(
        ["all", "--scale", "smoke", "--work", str(place / "work"), "--results", str(place / "results")]
    )
    assert left == 0
    return place


def test_every_experiment_leaves_rows(folder):
    for name, item in ITEMS.items():
        book = Book(folder / "results", SMOKE)
        for job in item.jobs(SMOKE):
            assert book.row(job) is not None, job
        if hasattr(item, "measure"):
            assert book.rows(getattr(item, "SCORES", name)), name


def test_every_experiment_may_run_again_without_doing_anything(folder, capsys):
    before = {path.name: path.read_text() for path in (folder / "results").glob("*.jsonl")}
    run.main(
        ["all", "--scale", "smoke", "--work", str(folder / "work"), "--results", str(folder / "results")]
    )
    assert before == {path.name: path.read_text() for path in (folder / "results").glob("*.jsonl")}
    assert "0 to do" in capsys.readouterr().out


def test_the_page_shows_every_experiment_and_its_figures(folder):
    report.main(["--scale", "smoke", "--results", str(folder / "results"), "--out", str(folder / "docs")])
    page = (folder / "docs" / "results.md").read_text()
    for item in ITEMS.values():
        assert f"## {item.TITLE}" in page
    shown = {line.split("(figures/")[1].split(")")[0] for line in page.splitlines() if line.startswith("![")}
    assert shown == {path.name for path in (folder / "docs" / "figures").iterdir()}
    assert {"fig03.png", "fig05-cifar100.png", "few-cifar100.png", "fig07-cub200.png", "fig10.png"} <= shown


def test_the_compact_file_holds_teachers_and_ground_truth(folder):
    held = np.load(folder / "work" / "fig07-cifar100.npz")
    teachers, tasks = 4, 2
    few = SMOKE.count("cifar100", fig07.FEW["cifar100"])
    assert held["accuracy"].shape == held[f"accuracy_{few}"].shape == (tasks, teachers + 1)
    assert held["teacher3_features"].dtype == np.float16
    assert len(held["teacher0_features"]) == len(held["labels"])
    scores = results.read(folder / "results" / "fig07-scores.jsonl")
    for per_class, key in ((None, "accuracy"), (few, f"accuracy_{few}")):
        some = [row for row in scores if row["data"] == "cifar100" and row["per_class"] == per_class]
        assert [row["accuracy"] for row in some] == held[key][:, :-1].flatten().tolist()
    assert all(row["teacher_weights"] for row in scores)
    samples = {row["per_class"]: row["samples"] for row in scores if row["data"] == "cifar100"}
    assert samples[few] < samples[None]


def test_teachers_are_assessed_on_images_that_they_have_not_seen_too(folder):
    rows = results.read(folder / "results" / "fig07.jsonl")
    assert {row["teacher_data"] for row in rows if row["data"] == fig07.NEW} == {"cifar100-first"}
    held = np.load(folder / "work" / f"fig07-{fig07.NEW}.npz")
    own = np.load(folder / "work" / "fig07-cifar100.npz")
    assert not set(json.loads(str(held["story"]))["weights"]) & set(json.loads(str(own["story"]))["weights"])
    scores = results.read(folder / "results" / "fig07-scores.jsonl")
    few = SMOKE.count(fig07.NEW, fig07.FEW[fig07.NEW])
    assert {row["per_class"] for row in scores if row["data"] == fig07.NEW} == {few}


def test_toy_numbers_do_not_go_where_the_real_ones_are(tmp_path):
    with pytest.raises(SystemExit, match="needs --results"):
        run.main(["tab02", "--scale", "smoke", "--work", str(tmp_path)])


def test_real_data_has_to_be_named(tmp_path):
    with pytest.raises(SystemExit, match="--data"):
        run.main(["tab02", "--work", str(tmp_path), "--results", str(tmp_path)])


def test_a_plan_can_be_looked_at(tmp_path, capsys):
    left = run.main(["fig05", "--work", str(tmp_path), "--results", str(tmp_path), "--list", "--only", "data=cifar100",
                     "student=wrn-16-1", "seed=0"])  # fmt: skip
    assert left == len([j for j in ITEMS["fig05"].jobs(run.PAPER) if (j.student, j.seed) == ("wrn-16-1", 0)])
    assert "after 1 teachers" in capsys.readouterr().out
