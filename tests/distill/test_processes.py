from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from preceptor.distill.sync_norm import synchronise

PROGRAM = """
import sys
from preceptor.distill.schedules import distill
from preceptor.models import build
from tests.distill.toys import toy_task
# 102 samples in batches of 24: the last batch is ragged.
distill("cnn-2", toy_task(train=102), build("cnn-4", 3, (1, 8, 8), seed=5), "sinkhorn", sys.argv[1], epochs=2,
        batch_size=24, device="cpu", augment="pad-crop-flip", clip=1.0, mixup=float(sys.argv[2]))
"""
ROOT = Path(__file__).parents[2]


def launch(processes: int, out: Path, mixup: float) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    program = out.parent / "program.py"
    program.write_text(PROGRAM)
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*start, str(program), str(out), str(mixup)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return log, load_file(out / "model.safetensors")


def assert_same(processes: int, mixup: float, home: Path) -> None:
    (one, weights), (many, others) = (launch(n, home / str(n), mixup) for n in (1, processes))
    assert len(one) == len(many) == 2
    for first, second in zip(one, many, strict=True):
        for name in ("task", "sinkhorn"):
            np.testing.assert_allclose(second["terms"][name], first["terms"][name], rtol=1e-5)
        assert second["train_accuracy"] == pytest.approx(first["train_accuracy"])
        np.testing.assert_allclose(second["test_loss"], first["test_loss"], rtol=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, rtol=1e-4, atol=1e-5)


def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    assert_same(2, 0.3, tmp_path)


@pytest.mark.slow
def test_four_processes_train_what_one_trains(tmp_path: Path) -> None:
    assert_same(4, 0.0, tmp_path)


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
