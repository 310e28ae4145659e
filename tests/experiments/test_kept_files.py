"""What several processes read and write side by side appears whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.items import fig07
from experiments.jobs import SMOKE, distillation
from experiments.lab import Lab, save, write_tensors
from safetensors.torch import load_file

from preceptor.core import Outputs
from preceptor.models import build


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def parts_left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


def test_a_probe_is_fitted_once_and_a_write_that_fails_leaves_none(lab, monkeypatch):
    chance = np.random.default_rng(0)
    outputs = Outputs(chance.normal(size=(40, 6)), chance.normal(size=(40, 5)), np.arange(40) % 5)
    job = distillation(SMOKE, "trial", "cifar100", "wrn-16-1", "probe-kd", "wrn-40-2", 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr("preceptor.files.os.replace", full)
        with pytest.raises(OSError, match="No space"):
            lab.probe(job, outputs)
    assert not [path for path in lab.work.rglob("*") if path.is_file()]
    first = lab.probe(job, outputs)
    monkeypatch.setattr("experiments.lab.fit_probe", lambda *_: pytest.fail("fitted again"))
    again = Lab(SMOKE, lab.work, results=lab.results).probe(job, outputs)
    torch.testing.assert_close(again.weight, first.weight, atol=0, rtol=0)
    assert again.penalty == first.penalty


def test_two_that_write_one_network_do_not_meet(tmp_path):
    path, networks = (
        tmp_path / "a.safetensors",
        [build("cnn-4", 5, (3, 16, 16), seed=seed) for seed in (1, 2)],
    )
    threads = [
        threading.Thread(target=lambda one=one: [save(one, path) for _ in range(20)]) for one in networks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = load_file(path)["classifier.weight"]
    assert any(torch.equal(held, network.classifier.weight) for network in networks)
    assert not parts_left(tmp_path)


def test_tensors_of_any_layout_are_kept_as_they_read(tmp_path):
    wide = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last).requires_grad_()
    write_tensors({"wide": wide, "one": torch.tensor(2.5)}, tmp_path / "deep" / "a.safetensors")
    held = load_file(tmp_path / "deep" / "a.safetensors")
    torch.testing.assert_close(held["wide"], wide.detach(), atol=0, rtol=0)
    assert float(held["one"]) == 2.5


def test_the_compact_file_is_whole_or_the_old_one(tmp_path, monkeypatch, capsys):
    path = tmp_path / "fig07.npz"
    fig07._write(path, {"labels": np.arange(3)})
    with monkeypatch.context() as patch:
        patch.setattr("preceptor.files.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            fig07._write(path, {"labels": np.arange(4)})
    assert np.load(path)["labels"].tolist() == [0, 1, 2]
    assert not parts_left(tmp_path)
    assert "fig07.npz" in capsys.readouterr().out
