"""A teacher from a function of the user's: its code runs only when trusted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.source_check import INPUTS, check

FACTORY = """
import torch
from torch import nn
from preceptor.zoo import Preprocessing
open("imported", "w").close()

def make():
    torch.manual_seed(7)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    net.classes = ["ant", "bee", "cat"]
    net.preprocessing = Preprocessing.for_size((3, 32, 32))
    return net

def wrong():
    return "no network"


def failing():
    raise RuntimeError("no licence")
"""


def test_python(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "teacher_factory_a.py").write_text(FACTORY)
    (tmp_path / "teacher_factory_b.py").write_text("absent\n")
    source = "python:teacher_factory_a:make"
    with pytest.raises(PreceptorError, match="runs code of that module; say --trust-code"):
        zoo.add(source, name="t")
    assert not (tmp_path / "imported").exists()
    zoo.add(source, name="t", trust_code=True)
    import teacher_factory_a

    own = teacher_factory_a.make().eval()
    check(zoo, "t", own[:4](INPUTS), own(INPUTS), own[4].weight)
    with pytest.raises(PreceptorError, match="--trust-code"):
        zoo.load("t")
    assert "--trust-code" in zoo.verify("t")[0]
    for source, reason in (
        ("python:teacher_factory_a:wrong", "returned str; expected a torch nn.Module"),
        ("python:teacher_factory_a:absent", "cannot be imported"),
        ("python:no_such_module:make", "cannot be imported"),
        ("python:teacher_factory_a", "write python:module:factory"),
        (
            "python:teacher_factory_a:failing",
            r"made no network: RuntimeError: no licence \(teacher_factory_a.py, line \d+\)",
        ),
        (
            "python:teacher_factory_b:make",
            r"cannot be imported: NameError: .*\(teacher_factory_b.py, line 1\)",
        ),
    ):
        with pytest.raises(PreceptorError, match=reason):
            zoo.add(source, name="u", trust_code=True)
