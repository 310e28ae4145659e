from __future__ import annotations

from pathlib import Path

import pytest
import torch

import preceptor.distill
from preceptor import distill
from preceptor.core import PreceptorError
from preceptor.distill.schedules import SCHEDULES, check_call
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.toys import toy_task


@pytest.fixture(scope="module")
def teacher():
    return train(toy_task(seed=1), student="cnn-4", epochs=4)


def test_the_package_can_be_called() -> None:
    assert callable(distill)
    assert preceptor.distill.SCHEDULES is SCHEDULES
    assert "sinkhorn" in preceptor.distill.METHODS


def test_ban_each_generation_learns_from_the_one_before(tmp_path: Path) -> None:
    result = distill("cnn-2", toy_task(), None, "ban", tmp_path / "a", generations=3, epochs=2)
    methods = [stage.config["method"] for stage in (*result.stages, result)]
    assert methods == ["none", "ban", "ban"]
    assert [stage.config["seed"] for stage in (*result.stages, result)] == [0, 1, 2]
    hashes = [stage.config["teacher"]["sha256"] for stage in (result.stages[1], result)]
    assert len(set(hashes)) == 2
    assert (tmp_path / "a/generation-1/result.json").exists()
    again = distill("cnn-2", toy_task(), None, "ban", tmp_path / "a", generations=3, epochs=2, resume=True)
    assert again.accuracy == result.accuracy


def test_refilled_goes_on_with_the_first_stages_student(tmp_path: Path, teacher) -> None:
    result = distill(
        "cnn-2", toy_task(classes="wxyz"), teacher, "refilled", tmp_path / "a", epochs=2, embedding_epochs=1,
        with_baseline=True,
    )  # fmt: skip
    (first,) = result.stages
    assert (first.config["method"], result.config["method"]) == ("refilled-embedding", "refilled-classifier")
    assert (len(first.history), len(result.history)) == (1, 2)
    assert result.model is first.model
    plain = train(toy_task(classes="wxyz"), student="cnn-2", epochs=2)
    assert result.baseline_accuracy == plain.accuracy


def test_sftn_trains_its_own_teacher(tmp_path: Path, teacher) -> None:
    result = distill("cnn-2", toy_task(), teacher.model, "sftn", tmp_path / "a", epochs=2)
    (first,) = result.stages
    assert first.config["arch"] == "cnn-4"
    assert "branch_kd" in first.history[-1]["terms"]
    assert "kd" in result.history[-1]["terms"]
    named = distill("cnn-2", toy_task(), None, "sftn", epochs=1, teacher_arch="cnn-3")
    assert named.stages[0].config["arch"] == "cnn-3"
    with pytest.raises(PreceptorError, match="give teacher_arch, such as wrn-40-2"):
        distill("cnn-2", toy_task(), None, "sftn", epochs=1)


def test_sskd_trains_the_head_first(tmp_path: Path, teacher) -> None:
    result = distill("cnn-2", toy_task(), teacher, "sskd", tmp_path / "a", epochs=2, head_epochs=1)
    (first,) = result.stages
    losses = first.history[-1]["terms"]
    assert losses["teacher_head"] > 0
    assert losses["kd"] == 0
    assert "teacher_head" not in result.history[-1]["terms"]  # ready, and not trained on
    torch.testing.assert_close(
        result.method_state["teacher_head.0.weight"], first.method_state["teacher_head.0.weight"]
    )
    again = distill(
        "cnn-2", toy_task(), teacher, "sskd", tmp_path / "a", epochs=2, head_epochs=1, resume=True
    )
    assert again.accuracy == result.accuracy


def test_an_unknown_method_names_them_all() -> None:
    with pytest.raises(
        PreceptorError, match=r"method 'transport' is unknown; expected one of .*refilled.*sinkhorn"
    ):
        distill("cnn-2", toy_task(), build("cnn-2", 4, (1, 8, 8)), "transport")


@pytest.mark.parametrize(
    ("method", "option", "sentence"),
    [
        ("ban", {"generations": "x"}, "generations 'x' came; a whole number was expected"),
        ("sftn", {"teacher_arch": 3}, "teacher_arch 3 came; a word was expected"),
        ("refilled", {"embedding_options": 3}, "embedding_options 3 came; settings by name were expected"),
    ],
)
def test_an_option_of_a_schedule_of_the_wrong_kind_is_refused(
    method: str, option: dict[str, object], sentence: str
) -> None:
    with pytest.raises(PreceptorError, match=sentence):
        distill("cnn-2", toy_task(), None, method, **option)
    with pytest.raises(PreceptorError, match=sentence):
        check_call(method, "small", option, "images")
