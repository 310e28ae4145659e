from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from preceptor.core import PreceptorError
from preceptor.data.task import Task
from preceptor.distill import checkpoint
from preceptor.distill.inputs import InputSpec, input_spec
from preceptor.distill.losses import METHODS
from preceptor.distill.losses.table import default_options
from preceptor.distill.train import train
from preceptor.models import build
from preceptor.zoo import Zoo
from tests.distill.toys import toy_task, vector_task

ROOT = Path(__file__).parents[2]


def kill_and_resume(method: str, seed: int, options: dict[str, object], home: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.distill.kill_and_resume",
        method,
        str(seed),
        json.dumps(options),
        str(home),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("method", "seed", "options"),
    [
        ("sinkhorn", 11, {"ema": 0.9, "clip": 1.0, "mixup": 0.3, "mixup_until": 0.6, "label_smoothing": 0.1}),
        ("seed", 12, {"optimizer": "adamw", "lr": 0.01, "patience": 2, "validation_fraction": 0.2}),
    ],
)
def test_killed_at_random_steps_it_ends_with_the_same_bits(
    method: str, seed: int, options: dict[str, object], tmp_path: Path
) -> None:
    found = kill_and_resume(method, seed, options, tmp_path)
    ends = found.pop("ends")
    assert set(ends) <= {0, -signal.SIGKILL}
    assert ends.count(-signal.SIGKILL) >= 3  # a kill may come after the end
    assert found == {"differing": [], "logs": True, "left": []}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["kd", "sskd", "refilled", "vid", "wcord"])
def test_every_kind_of_state_survives_kills(method: str, seed: int, tmp_path: Path) -> None:
    found = kill_and_resume(method, 100 + seed, {"accumulate": 2}, tmp_path)
    assert found["differing"] == []
    assert found["logs"]


def test_a_run_from_before_a_setting_of_the_recipe_was_there_goes_on(tmp_path: Path) -> None:
    call = {"student": "cnn-2", "epochs": 2, "mixup": 0.5, "out": tmp_path / "a"}
    first = train(toy_task(), **call)
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    del config["recipe"]["mixup_until"]
    path.write_text(json.dumps(config))
    assert train(toy_task(), **call, resume=True).accuracy == first.accuracy
    with pytest.raises(PreceptorError, match=r"recipe.mixup_until was 1.0 and is 0.5"):
        train(toy_task(), **call, mixup_until=0.5, resume=True)


def test_a_finished_run_is_read_and_not_trained_again(tmp_path: Path) -> None:
    first = train(toy_task(), student="cnn-2", epochs=2, out=tmp_path / "a")
    again = train(toy_task(), student="cnn-2", epochs=2, out=tmp_path / "a", resume=True)
    assert (again.accuracy, again.seconds, list(again.history)) == (
        first.accuracy,
        first.seconds,
        list(first.history),
    )
    for name, value in first.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "a")
    with pytest.raises(PreceptorError, match=r"already holds a run; pass resume=True \(--resume\)"):
        train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "a")


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "a")
    with pytest.raises(
        PreceptorError, match=r"recipe\.epochs was 1 and is 2; seed was 0 and is 3; give the same"
    ):
        train(vector_task(), student="mlp-4", epochs=2, seed=3, out=tmp_path / "a", resume=True)
    with pytest.raises(PreceptorError, match=r"data\.fingerprint was"):
        train(vector_task(seed=1), student="mlp-4", epochs=1, out=tmp_path / "a", resume=True)


def test_options_count_as_their_defaults_where_nothing_was_said(tmp_path: Path) -> None:
    call = {"student": "mlp-4", "method": "rkd", "teacher": build("mlp-4", 4, (6,), seed=1), "epochs": 1}
    known = default_options(METHODS["rkd"])
    for said, later, folder in (({}, known, "a"), (known, {}, "b")):
        first = train(vector_task(), out=tmp_path / folder, **call, **said)
        again = train(vector_task(), out=tmp_path / folder, resume=True, **call, **later)
        assert again.seconds == first.seconds
        with pytest.raises(
            PreceptorError, match=r"method_options\.distance_weight was 25\.0 and is 3\.0; give"
        ):
            train(vector_task(), out=tmp_path / folder, resume=True, distance_weight=3.0, **call)


def test_data_under_another_name_are_the_same_data(tmp_path: Path) -> None:
    task = vector_task()
    first = train(task, student="mlp-4", epochs=1, out=tmp_path / "a")
    renamed = Task.from_splits(task.train, task.test, task.classes, "elsewhere")
    assert train(renamed, student="mlp-4", epochs=1, out=tmp_path / "a", resume=True).seconds == first.seconds


def test_centres_that_a_finished_run_lacks_are_written_when_asked_for(tmp_path: Path) -> None:
    call = {"student": "cnn-2", "epochs": 1}
    train(toy_task(), out=tmp_path / "a", write_centers=True, **call)
    train(toy_task(), out=tmp_path / "b", **call)
    centers = tmp_path / "b" / "centers.safetensors"
    assert not centers.exists()
    train(toy_task(), out=tmp_path / "b", resume=True, write_centers=True, **call)
    torch.testing.assert_close(load_file(centers), load_file(tmp_path / "a" / "centers.safetensors"))


def rounded(by: float) -> Any:
    """`input_spec` with sums that come out a little different, as with another number of threads."""

    def otherwise(*arguments: Any) -> InputSpec:
        spec = input_spec(*arguments)
        return replace(
            spec, mean=tuple(m + by * s for m, s in zip(spec.mean, spec.std, strict=True)),
            std=tuple(value * (1 + by) for value in spec.std),
        )  # fmt: skip

    return otherwise


def interrupted(**settings: Any) -> None:
    """A training that stops for want of space after the first checkpoint."""
    save = checkpoint.write_atomically
    with pytest.MonkeyPatch.context() as patch:
        written: list[Path] = []

        def runs_full(path: Path, data: bytes) -> None:
            if written:
                raise OSError(28, "No space left on device")
            written.append(path)
            save(path, data)

        patch.setattr(checkpoint, "write_atomically", runs_full)
        with pytest.raises(PreceptorError, match="disk is full"):
            train(**settings)


@pytest.mark.parametrize("task", [toy_task(), vector_task()], ids=["images", "vectors"])
def test_statistics_that_differ_by_rounding_do_not_matter_and_the_stored_ones_stay(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"task": task, "student": "mlp-4" if task.kind == "vectors" else "cnn-2", "epochs": 2}
    settings |= {"batch_size": 16, "checkpoint_every": 4, "device": "cpu"}
    whole = train(out=tmp_path / "whole", **settings)
    interrupted(out=tmp_path / "a", **settings)
    monkeypatch.setattr("preceptor.distill.session.input_spec", rounded(1e-9))
    for _ in range(2):  # goes on, then reads the finished run
        resumed = train(out=tmp_path / "a", resume=True, **settings)
        assert (resumed.config["mean"], resumed.config["std"]) == (whole.config["mean"], whole.config["std"])
        for name, value in whole.model.state_dict().items():
            assert torch.equal(resumed.model.state_dict()[name], value)
    monkeypatch.setattr("preceptor.distill.session.input_spec", rounded(1e-4))
    with pytest.raises(PreceptorError, match=r"other settings: mean was .*; std was"):
        train(out=tmp_path / "a", resume=True, **settings)


@pytest.mark.parametrize("role", ["teacher", "start_from"])
def test_another_spelling_of_the_same_teacher_does_not_matter_and_the_stored_one_stays(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo = Zoo(str(tmp_path / "zoo"))
    for seed, name in enumerate(("known", "other")):
        train(vector_task(), student="mlp-4", epochs=1, seed=seed, out=tmp_path / name)
        zoo.add(f"run:{tmp_path / name}", name=name)
    (tmp_path / "deep").mkdir()
    common = {"student": "mlp-4", "epochs": 1, "out": tmp_path / "a"}
    common |= {"method": "sinkhorn"} if role == "teacher" else {}
    monkeypatch.chdir(tmp_path)
    first = train(vector_task(), **{role: "zoo/known"}, **common)
    stored = (tmp_path / "a/config.json").read_text()
    monkeypatch.chdir(tmp_path / "deep")
    again = train(vector_task(), **{role: "../zoo/known"}, resume=True, **common)
    assert again.accuracy == first.accuracy
    assert again.config[role]["from"] == "zoo/known"
    assert (tmp_path / "a/config.json").read_text() == stored
    with pytest.raises(PreceptorError, match=rf"{role}\.name was .*{role}\.sha256 was"):
        train(vector_task(), **{role: "../zoo/other"}, resume=True, **common)


def test_the_whole_disk_full_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stops with a message; with space again the run goes on to the bits of an unbroken one."""
    settings = {"student": "mlp-4", "epochs": 3, "batch_size": 16, "checkpoint_every": 4}
    whole = train(vector_task(), out=tmp_path / "whole", **settings)
    written, write = [0], checkpoint.write_atomically

    def runs_full(path: Path, data: bytes) -> None:
        written[0] += 1
        if written[0] == 3:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(checkpoint, "write_atomically", runs_full)
    with pytest.raises(PreceptorError, match=r"disk is full: .*last good checkpoint is .*step-000000008"):
        train(vector_task(), out=tmp_path / "full", **settings)
    monkeypatch.undo()
    resumed = train(vector_task(), out=tmp_path / "full", resume=True, **settings)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
