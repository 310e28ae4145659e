"""What stands in a run's folder already is neither replaced nor damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from preceptor import Task, Zoo, rank, run, train
from preceptor.core import PreceptorError
from preceptor.distill.claim import claimed
from preceptor.distill.saved_run import load_run
from preceptor.pipeline.trials import Attempt
from tests.pipeline.blobs import RECIPE, blobs

CALL = {"student": "mlp-8", "method": "sinkhorn", "report": False, "refit": False, **RECIPE}


def contents(folder: Path) -> dict[str, bytes]:
    """Of every file but the lock, which stays empty."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_of_train_is_not_overwritten(zoo, tmp_path, resume, ranked):
    train(blobs("abcd"), student="mlp-8", out=tmp_path, **RECIPE)
    if ranked:
        (tmp_path / "ranking.json").write_text(rank(zoo, blobs("abcd"), ["logme"]).to_json())
    before = contents(tmp_path)
    with pytest.raises(
        PreceptorError, match="already holds a run of train or distill; choose another folder"
    ):
        run(zoo, blobs("abcd"), out=tmp_path, resume=resume, **CALL)
    assert contents(tmp_path) == before


def test_a_ranking_is_called_so_and_a_run_may_follow_it(zoo, tmp_path):
    (tmp_path / "ranking.json").write_text(rank(zoo, blobs("abcd"), ["logme"]).to_json())
    before = contents(tmp_path)
    with pytest.raises(
        PreceptorError, match=r"already holds a ranking, which a run replaces at its end; pass"
    ):
        run(zoo, blobs("abcd"), out=tmp_path, **CALL)
    assert contents(tmp_path) == before
    result = run(zoo, blobs("abcd"), out=tmp_path, resume=True, **CALL)
    assert json.loads((tmp_path / "ranking.json").read_text()) == json.loads(result.ranking.to_json())


@pytest.mark.parametrize(
    ("seed", "other", "sentence"),
    [
        (1, {}, "data.fingerprint was"),
        (0, {"weight": 3.0}, "method_options.weight was 100.0 and is 3.0"),
        (0, {"rank_options": {"teachers": ["same"], "sample": 20}, "lr": 0.5}, "recipe.lr was"),
    ],
)
def test_a_refused_resumption_leaves_a_finished_run_as_it_was(zoo, tmp_path, seed, other, sentence):
    run(zoo, blobs("abcd"), out=tmp_path, **CALL)
    before = contents(tmp_path)
    with pytest.raises(PreceptorError, match=f"cannot be resumed with other settings: .*{sentence}"):
        run(zoo, blobs("abcd", seed=seed), out=tmp_path, resume=True, **{**CALL, **other})
    assert contents(tmp_path) == before


def test_an_option_that_is_spelt_out_as_it_is_by_default_is_the_same(zoo, tmp_path):
    first = run(zoo, blobs("abcd"), out=tmp_path, **CALL)
    assert run(zoo, blobs("abcd"), out=tmp_path, resume=True, weight=100, **CALL).verdict == first.verdict


@pytest.mark.parametrize("renamed", [True, False])
def test_a_run_does_not_go_on_with_another_zoo(zoo, tmp_path, renamed):
    run(zoo, blobs("abcd"), out=tmp_path / "r", rank_options={"teachers": ["same"]}, **CALL)
    before = contents(tmp_path / "r")
    train(blobs("abcd", seed=5), student="mlp-8", out=tmp_path / "t", **RECIPE)
    another = Zoo(str(tmp_path / "another"))
    for name in ("new",) if renamed else ("new", "same"):
        another.add(f"run:{tmp_path / 't'}", name=name)
    with pytest.raises(
        PreceptorError,
        match=f"begun with another zoo: it has a student of {zoo.url}/same, which is no teacher of {another.url}; "
        "give the zoo that it was begun with or choose another folder",
    ):
        run(
            another,
            blobs("abcd"),
            out=tmp_path / "r",
            resume=True,
            rank_options={"teachers": ["new"]},
            **CALL,
        )
    assert contents(tmp_path / "r") == before


def test_a_run_goes_on_with_a_copy_of_its_zoo_that_has_grown(zoo, tmp_path):
    first = run(zoo, blobs("abcd"), out=tmp_path / "r", **CALL)
    shutil.copytree(zoo.url, tmp_path / "copy")
    train(blobs("mnop", seed=5), student="mlp-8", out=tmp_path / "t", **RECIPE)
    copy = Zoo(str(tmp_path / "copy"))
    copy.add(f"run:{tmp_path / 't'}", name="new")
    again = run(copy, blobs("abcd"), out=tmp_path / "r", resume=True, **CALL)
    assert len(again.ranking.rows) == len(first.ranking.rows) + 1
    assert again.accuracy == first.accuracy


def test_a_student_whose_teacher_was_trained_on_the_way_goes_on(zoo, tmp_path):
    call = {**CALL, "method": "ban", "generations": 2, "rank_options": {"teachers": ["same"]}}
    first = run(zoo, blobs("abcd"), out=tmp_path, **call)
    assert run(zoo, blobs("abcd"), out=tmp_path, resume=True, **call).accuracy == first.accuracy


@pytest.mark.parametrize("resume", [False, True])
def test_the_demonstration_is_not_replaced(zoo, tmp_path, resume):
    (tmp_path / "demo.json").write_text("{}")
    (tmp_path / "ranking.json").write_text(rank(zoo, blobs("abcd"), ["logme"]).to_json())
    before = contents(tmp_path)
    with pytest.raises(PreceptorError, match="already holds the demonstration; choose another folder"):
        run(zoo, blobs("abcd"), out=tmp_path, resume=resume, **CALL)
    assert contents(tmp_path) == before


def test_a_run_that_is_under_way_is_left_alone(zoo, tmp_path):
    with claimed(tmp_path, "ranking.json"), pytest.raises(PreceptorError, match="is in use"):
        run(zoo, blobs("abcd"), out=tmp_path, **CALL)


def test_a_run_without_a_kept_student_is_called_unfinished(zoo, tmp_path):
    run(zoo, blobs("abcd"), out=tmp_path, **CALL)
    for name in ("config.json", "result.json", "pipeline.json"):  # the last that are written
        (tmp_path / name).unlink()
    with pytest.raises(PreceptorError, match=r"is not finished; go on with the same command and resume=True"):
        load_run(tmp_path)
    shutil.rmtree(tmp_path / "plain")
    for folder in tmp_path.glob("from-*"):
        shutil.rmtree(folder)
    with pytest.raises(PreceptorError, match=r"is no run: it has no config\.json"):
        load_run(tmp_path)


def test_data_under_another_name_are_the_same_data(zoo, tmp_path, monkeypatch):
    task = blobs("abcd")
    renamed = Task.from_splits(task.train, task.test, task.classes, "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "by", lambda *_: pytest.fail("was not to come so far"))
        with pytest.raises(pytest.fail.Exception):
            run(zoo, task, out=tmp_path, **CALL)
    assert (tmp_path / "plain" / "result.json").exists()
    assert run(zoo, renamed, out=tmp_path, resume=True, **CALL).path == tmp_path
