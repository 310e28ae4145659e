from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from preceptor.distill.sync_norm import synchronise

PROGRAM = """
import errno, os, sys
from pathlib import Path
from preceptor.core import PreceptorError
from preceptor.distill import run_folder
from preceptor.distill.schedules import distill
from preceptor.models import build
from tests.distill.toys import toy_task
out, mixup, *methods = sys.argv[1:]
save = run_folder.save_checkpoint
def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
run_folder.save_checkpoint = full
try:
    distill("cnn-2", toy_task(train=24), None, "none", f"{out}/full", epochs=1, device="cpu")
except PreceptorError as error:
    Path(f"{out}/heard-{os.environ.get('RANK', 0)}").write_text(str(error))
run_folder.save_checkpoint = save
for given in methods:
    name, _, more = given.partition("@")
    size = 16 if name == "mgd" else 8  # maps of one pixel are all alike to mgd, and rounding would decide its matches
    # 102 samples in batches of 24: the last batch is ragged.
    task, teacher = toy_task(train=102, size=size), build("cnn-4", 4, (1, size, size), seed=5)
    if more:  # 30 labelled samples twice and 71 others: again a ragged end, and a rank's share of labels varies
        task, more = toy_task(train=30), toy_task(train=71, seed=3)
    distill("cnn-2", task, teacher, name, f"{out}/{given}", unlabelled=more or None, epochs=2,
            batch_size=24, device="cpu", augment="pad-crop-flip", mixup=float(mixup), lr=0.01,
            clip=1.0 if name == "sinkhorn" else 0.0,  # a clipped gradient would look right at any scale
            teacher_classes=list("badc"))
"""
ROOT = Path(__file__).parents[2]
# Means over rows; rows related to each other, with views and memories; statistics of the batch on the way.
FEW = ("sinkhorn", "rkd", "sskd", "seed", "refilled-classifier", "mgd")
MANY = (*FEW, "aml", "refilled-embedding", "wcord", "dist", "afd", "fitnet", "vid", "vkd", "sinkhorn+probe")
# As some of these with samples that have no label: a cross-entropy over some rows, terms over all.
UNLABELLED = ("sinkhorn@more", "rkd@more", "probe-kd@more")
Trained = dict[str, tuple[list[dict[str, Any]], dict[str, torch.Tensor]]]


def launch(processes: int, out: Path, mixup: float, methods: tuple[str, ...]) -> Trained:
    """Train each method in one start of the processes: its log and the student's weights."""
    program = out.parent / "program.py"
    program.write_text(PROGRAM)
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*start, str(program), str(out), str(mixup), *methods],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""
    heard = [file.read_text() for file in out.glob("heard-*")]
    assert len(heard) == processes, "all of them hear that the disk of the first one is full"
    assert all("the disk is full: a checkpoint" in text for text in heard)
    return {
        name: (
            [json.loads(line) for line in (out / name / "log.jsonl").read_text().splitlines()],
            load_file(out / name / "model.safetensors"),
        )
        for name in methods
    }


def assert_same(processes: int, mixup: float, home: Path, methods: tuple[str, ...]) -> None:
    alone, together = (launch(n, home / str(n), mixup, methods) for n in (1, processes))
    for name in methods:
        (one, weights), (many, others) = alone[name], together[name]
        assert len(one) == len(many) == 2
        for first, second in zip(one, many, strict=True):
            assert first["terms"].keys() == second["terms"].keys()
            for term, value in first["terms"].items():
                np.testing.assert_allclose(
                    second["terms"][term], value, rtol=2e-5, atol=1e-7, err_msg=f"{name}: {term}"
                )
            assert second["train_accuracy"] == pytest.approx(first["train_accuracy"])
            np.testing.assert_allclose(second["test_loss"], first["test_loss"], rtol=1e-4, err_msg=name)
        for key, value in weights.items():
            torch.testing.assert_close(
                others[key], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    assert_same(2, 0.3, tmp_path, (*FEW, *UNLABELLED))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_train_what_one_trains(tmp_path: Path, processes: int) -> None:
    assert_same(processes, 0.0, tmp_path, (*MANY, *UNLABELLED))


def test_synchronised_batch_norm_alone_is_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda values: None)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    twin = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    twin.load_state_dict(plain.state_dict())
    changes = synchronise(twin, torch.device("cpu"))
    images = torch.randn(5, 2, 6, 6)
    for network in (plain, twin):
        network(images).square().mean().backward()
    torch.testing.assert_close(twin(images), plain(images))
    torch.testing.assert_close(twin[0].weight.grad, plain[0].weight.grad)
    assert twin.state_dict().keys() == plain.state_dict().keys()
    changes.undo()
    assert type(twin[1]) is nn.BatchNorm2d
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[name], value)


def test_batch_norms_that_do_more_are_named() -> None:
    class Activated(nn.BatchNorm2d):
        pass

    network = nn.Sequential(nn.BatchNorm2d(2), Activated(2))
    assert synchronise(network, torch.device("cpu")).left == ["1"]
