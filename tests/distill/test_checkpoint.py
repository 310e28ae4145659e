from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from preceptor.core import PreceptorError
from preceptor.distill import checkpoint as module
from preceptor.distill.checkpoint import (
    Checkpoint,
    checkpoint_files,
    load_checkpoint,
    load_optimizer,
    optimizer_tensors,
    save_checkpoint,
)
from preceptor.distill.run_folder import RunFolder


def make(step: int) -> Checkpoint:
    return Checkpoint(
        step, {"student/weight": torch.full((3,), float(step))}, {"epoch": 1, "rate": 0.1 + 0.2}
    )


def test_round_trip_and_the_older_one_goes(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, make(5))
    save_checkpoint(tmp_path, make(12))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.values) == (12, {"epoch": 1, "rate": 0.1 + 0.2})
    torch.testing.assert_close(found.section("student")["weight"], torch.full((3,), 12.0))
    assert [path.name for path in checkpoint_files(tmp_path)] == ["step-000000012.safetensors"]


def test_it_is_a_plain_safetensors_file(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, make(1))
    assert set(load_file(path)) == {"student/weight"}


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_crash_while_writing_keeps_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    save_checkpoint(tmp_path, make(5))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, broken, die)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, make(6))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


def test_a_half_file_is_passed_over(tmp_path: Path) -> None:
    whole = save_checkpoint(tmp_path, make(5)).read_bytes()
    (tmp_path / "step-000000009.safetensors").write_bytes(whole[:-4])
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


def test_nothing_readable_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "step-000000009.safetensors").write_bytes(b"nonsense")
    with pytest.raises(PreceptorError, match=r"no checkpoint in .* can be read .*step-000000009"):
        load_checkpoint(tmp_path)
    assert load_checkpoint(tmp_path / "empty") is None


def test_a_full_disk_names_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(make(5))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(
        PreceptorError, match=r"disk is full: a checkpoint .*step-000000005.safetensors.*--resume"
    ):
        folder.save_checkpoint(make(6))
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert loaded.step == 5


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_optimizer_state_comes_back_to_the_bit(kind: str) -> None:
    def make_optimizer() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        if kind == "sgd":
            return weight, torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        return weight, torch.optim.AdamW([weight], lr=0.1)

    def steps(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()

    weight, optimizer = make_optimizer()
    steps(weight, optimizer, 3)
    saved, state = weight.detach().clone(), {k: v.clone() for k, v in optimizer_tensors(optimizer).items()}
    steps(weight, optimizer, 3)
    again, fresh = make_optimizer()
    with torch.no_grad():
        again.copy_(saved)
    load_optimizer(fresh, state)
    steps(again, fresh, 3)
    assert torch.equal(again, weight)
