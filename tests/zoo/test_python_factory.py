"""A teacher from a function of the user's: its code runs only when trusted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.source_check import INPUTS, check

FACTORY = """
import sys
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


def leaving():
    raise SystemExit("no licence")


def noisy():
    print("made")
    net = make()
    net.register_forward_hook(lambda *_: print("called"))
    return net


def ending():
    net = make()
    net.register_forward_hook(lambda *_: sys.exit(3))
    return net
"""

PARSING = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--needed", required=True)
parser.parse_args()
"""


def test_python(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "teacher_factory_a.py").write_text(FACTORY)
    (tmp_path / "teacher_factory_b.py").write_text("absent\n")
    (tmp_path / "teacher_factory_c.py").write_text(PARSING)
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
        (
            "python:teacher_factory_c:make",
            r"python:teacher_factory_c:make would end the program: SystemExit: 2 \(teacher_factory_c.py, line 4\)",
        ),
        (
            "python:teacher_factory_a:leaving",
            r"would end the program: SystemExit: no licence \(teacher_factory_a.py",
        ),
        (
            "python:teacher_factory_a:ending",
            r"would end the program: SystemExit: 3 \(teacher_factory_a.py, line \d+\)",
        ),
    ):
        with pytest.raises(PreceptorError, match=reason):
            zoo.add(source, name="u", trust_code=True)


def test_what_it_prints_goes_to_standard_error(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "teacher_factory_d.py").write_text("print('imported')\n" + FACTORY)
    zoo.add("python:teacher_factory_d:noisy", name="t", trust_code=True)
    assert zoo.verify("t", trust_code=True) == []
    zoo.load("t", trust_code=True).logits(INPUTS)
    out, err = capsys.readouterr()
    assert out == ""
    assert {"imported", "made", "called"} <= set(err.split())
