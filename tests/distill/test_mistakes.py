"""What a call gets wrong is told in one sentence, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError, Ranking
from preceptor.distill import distill
from preceptor.distill.devices import hash_seed, plain_seed
from preceptor.distill.losses import Method, Step
from preceptor.distill.losses.method import task_loss
from preceptor.distill.recipe import Recipe
from preceptor.distill.train import train
from preceptor.models import build
from preceptor.zoo import Zoo
from tests.distill.plain import Plain
from tests.distill.toys import toy_task, vector_task


class GivesTensor(Plain):
    def outputs(self, images: Tensor) -> Any:
        return super().outputs(images).logits


class Nan(Plain):
    def outputs(self, images: Tensor) -> Any:
        found = super().outputs(images)
        found.logits[:, 0] = torch.nan
        return found


class Nameless(Method):
    reference, needs = "a test", frozenset()

    def terms(self, step: Step) -> dict[str, Any]:
        return {"task": task_loss(step), "more": 0.5}


class FloatTerm(Nameless):
    name = "float term"


class RowTerm(Nameless):
    name = "row term"

    def terms(self, step: Step) -> dict[str, Any]:
        return {"task": step.student.logits.sum(dim=1)}


class NoTerm(Nameless):
    name = "no term"

    def terms(self, step: Step) -> Any:
        return task_loss(step)


def frozen() -> nn.Module:
    return Plain().requires_grad_(False)


SINKHORN: dict[str, Any] = {"method": "sinkhorn", "teacher": Plain()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"seed": 2**64}, r"seed 18446744073709551616 came; expected a whole number below 2\*\*63"),
        ({"image_size": 32}, "image_size 32 came and the samples are vectors, which have none; leave it out"),
        ({"evaluate_every": 0}, "evaluate_every 0 came; at least 1 was expected"),
        ({"checkpoint_every": 0}, "checkpoint_every 0 came; at least 1 was expected"),
        (
            {"resume": True},
            r"resume goes on with the run in a folder and none was named; give it as out \(--out\)",
        ),
        ({"recipe": {"epochs": 3}}, r"recipe \{'epochs': 3\} came; a name or a Recipe was expected"),
        ({"student": Plain}, r"the class Plain came as student; give a module: Plain\(…\)"),
        ({"student": frozen()}, r"Plain has no parameter that may be trained; call requires_grad_\(\) on it"),
        (
            {"student": Plain().double()},
            r"student Plain has weights of torch.float64 .*; call float\(\) on it",
        ),
        ({"student": GivesTensor()}, r"outputs\(x\) of GivesTensor gave a Tensor; expected .*ModelOutput"),
        ({**SINKHORN, "teacher": GivesTensor()}, r"outputs\(x\) of GivesTensor gave a Tensor; expected"),
        ({**SINKHORN, "teacher": Plain().double()}, r"the teacher Plain has weights of torch.float64"),
        ({**SINKHORN, "teacher": Nan()}, "NaN or infinite for 96 of 96 training samples; check its weights"),
        (
            {**SINKHORN, "teacher": Ranking("sinkhorn", ())},
            "a teacher of Ranking came; expected .*ranking.best",
        ),
        ({**SINKHORN, "temperature": 0}, "temperature 0 came; a number above 0 was expected"),
        (
            {**SINKHORN, "recipe": Recipe(method_options={"sinkhorn": {"temperature": 0}})},
            "temperature 0 came; a number above 0 was expected",
        ),
        ({"method": Nameless}, 'Nameless has no name; give the class one, such as name = "mine"'),
        ({"method": FloatTerm}, "term more of method float term is 0.5; expected a tensor of no dimension"),
        ({"method": RowTerm}, r"term task of method row term is a tensor of shape \(64,\); expected"),
        ({"method": NoTerm}, "method no term gave tensor.*; expected its terms by name"),
        ({"method": Plain}, "Plain'> came; a name or a subclass of Method was expected"),
        ({"method": "sinkhon"}, "method 'sinkhon' is unknown; did you mean 'sinkhorn'.*?"),
    ],
)
def test_one_sentence(call: dict[str, Any], message: str, tmp_path: Path) -> None:
    where = {} if "resume" in call else {"out": tmp_path / "run"}
    with pytest.raises(PreceptorError, match=message):
        train(vector_task(), **{"student": "mlp-4", "epochs": 1, **where, **call})
    assert not (tmp_path / "run" / "config.json").exists(), "the folder is free for a better call"


def test_one_sample_at_a_time_is_no_batch_for_batch_norm() -> None:
    class Normed(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Sequential(self.hidden, nn.BatchNorm1d(5))

    with pytest.raises(PreceptorError, match=r"cannot train on one sample at a time .*; choose a batch_size"):
        train(vector_task(), student=Normed(), epochs=1, batch_size=1)


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/run"):
        with pytest.raises(PreceptorError, match="is needed: name another folder"):
            train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / place)
    assert (tmp_path / "file").read_text() == "mine"


def test_distill_names_schedules_too_and_has_the_same_sentence() -> None:
    with pytest.raises(PreceptorError, match=r"method 'sktd' is unknown; did you mean 'sskd' or 'kd'\?"):
        distill("mlp-4", vector_task(), Plain(), "sktd")


@pytest.mark.parametrize("kind", [np.int64, np.uint8, int])
def test_a_seed_of_numpy_is_the_same_seed(kind: type) -> None:
    assert type(plain_seed(kind(3))) is int
    assert hash_seed(plain_seed(kind(3)), 1) == hash_seed(3, 1)
    result = train(vector_task(), student="mlp-4", epochs=1, seed=kind(3), mixup=0.1)
    expected = train(vector_task(), student="mlp-4", epochs=1, seed=3, mixup=0.1)
    torch.testing.assert_close(result.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_a_seed_that_no_generator_takes_is_refused_by_build() -> None:
    with pytest.raises(PreceptorError, match=r"seed 18446744073709551616 came; expected .* below 2\*\*63"):
        build("mlp-4", 3, (5,), seed=2**64)


def test_numbers_of_numpy_are_plain_in_the_run_folder(tmp_path: Path) -> None:
    given = {
        "lr": np.float32(0.5),
        "epochs": np.int64(2),
        "milestones": [np.float32(0.5)],
        "weight": np.float32(2),
    }
    result = distill("mlp-4", vector_task(), Plain(), out=tmp_path / "run", lr_schedule="step", **given)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["recipe"]["lr"], config["recipe"]["epochs"], config["recipe"]["milestones"]) == (
        0.5,
        2,
        [0.5],
    )
    assert config["method_options"] == {"weight": 2.0}
    assert len(result.history) == 2


def test_a_training_that_fails_before_its_first_record_leaves_the_folder_free(tmp_path: Path) -> None:
    call = {"student": "mlp-4", "out": tmp_path / "run", "epochs": 1}
    with pytest.raises(PreceptorError, match="training diverged at step"):
        train(vector_task(), lr=1e30, batch_size=8, **call)
    assert train(vector_task(), **call).path == tmp_path / "run"


@pytest.mark.parametrize("line", [b"{broken", b'{"a": "\xff"}'], ids=["no JSON", "no UTF-8"])
def test_a_broken_line_of_the_log_is_told(tmp_path: Path, line: bytes) -> None:
    call = {"student": "mlp-4", "out": tmp_path / "run", "epochs": 2}
    train(vector_task(), **call)
    log = tmp_path / "run/log.jsonl"
    log.write_bytes(line + b"\n" + log.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(PreceptorError, match=r"log.jsonl is not valid JSON .*; restore it or train again"):
        train(vector_task(), resume=True, **call)


def test_a_teacher_may_be_named_by_a_path(tmp_path: Path) -> None:
    train(toy_task(), student="cnn-4", epochs=1, out=tmp_path / "run")
    Zoo(str(tmp_path / "zoo")).add(f"run:{tmp_path / 'run'}", name="t")
    result = distill("cnn-2", toy_task(), tmp_path / "zoo" / "t", epochs=1)
    assert result.config["teacher"]["from"] == str(tmp_path / "zoo" / "t")
