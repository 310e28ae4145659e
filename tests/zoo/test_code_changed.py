"""A `python:` teacher whose code no longer does what it did when the teacher was added is refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Teacher, Zoo, extract, load_teacher
from preceptor.zoo.features import cache_key
from tests.zoo.conftest import make_task

LAYERS = "from torch import nn\n\nactivation = nn.ReLU\n"
MODULE = """
import torch
from torch import nn
from changing_layers import activation
from preceptor.zoo import Preprocessing

class Net(nn.Module):
    classes = ["ant", "bee", "cat"]
    preprocessing = Preprocessing.for_size((3, 16, 16))

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), activation(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x))

def make():
    torch.manual_seed(7)
    return Net()
"""
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the user's two files, and forgets them as a fresh process would not know them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def files(module: str = MODULE, layers: str = LAYERS) -> None:
        (tmp_path / "changing_module.py").write_text(module)
        (tmp_path / "changing_layers.py").write_text(layers)
        for name in ("changing_module", "changing_layers"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    files()
    return files


@pytest.fixture
def own(zoo: Zoo, write: Write) -> Zoo:
    zoo.add("python:changing_module:make", name="t", trust_code=True)
    return zoo


# What is changed: (in the module, from, to) or (in the module that it imports, from, to), and what is said of it.
CHANGES = {
    "its layers": (("module", "activation()", "nn.Sigmoid()"), "its features are not those recorded"),
    "a module that it imports": (("layers", "ReLU", "Sigmoid"), "its features are not those recorded"),
    "its forward pass": (("module", "(self.body(x))", "(self.body(x) * 2)"), "its features are not those"),
    "a layer more": (("module", "Flatten()", "Flatten(), nn.Linear(4, 4)"), "missing: body.4.weight"),
    "other sizes": (("module", "Linear(4, 3)", "Linear(4, 5)"), "other shapes: head.weight is"),
    "a mistake": (("module", "self.head(s", "self.haed(s"), r"AttributeError: .* \(\w+.py, line \d+\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_is_refused(own: Zoo, write: Write, change: str) -> None:
    (file, before, after), reason = CHANGES[change]
    write(**{file: {"module": MODULE, "layers": LAYERS}[file].replace(before, after)})
    sentence = (
        rf"^python:changing_module:make no longer makes the network that was added as 't' \(.*{reason}.*\); restore "
        "its code, or remove the teacher .zoo remove. and add it again .zoo add.$"
    )
    for load in (
        lambda: own.load("t", trust_code=True),
        lambda: load_teacher(f"{own.url}/t", trust_code=True),
    ):
        with pytest.raises(PreceptorError, match=sentence):
            load()
    (problem,) = own.verify("t", trust_code=True)
    assert "no longer makes the network that was added as 't'" in problem


def test_what_comes_after_the_head_is_refused(own: Zoo, write: Write) -> None:
    write(MODULE.replace("self.head(self.body(x))", "self.head(self.body(x)).softmax(1)"))
    with pytest.raises(
        PreceptorError, match=r"no longer equals the network's logits: what builds it has changed"
    ):
        own.load("t", trust_code=True)


def test_code_that_changed_and_does_the_same_goes_on(own: Zoo, write: Write) -> None:
    write("# My networks.\n" + MODULE + "\n\ndef another():\n    return nn.Linear(1, 1)\n")
    assert own.load("t", trust_code=True).classes == ("ant", "bee", "cat")
    assert own.verify("t", trust_code=True) == []
    write()
    assert own.verify("t", trust_code=True) == []


def test_features_of_the_code_before_are_not_taken_for_those_after(own: Zoo, write: Write) -> None:
    task = make_task()
    before = extract(own.load("t", trust_code=True), task.train)
    write(layers=LAYERS.replace("ReLU", "Sigmoid"))
    own.remove("t")
    own.add("python:changing_module:make", name="t", trust_code=True)
    teacher = own.load("t", trust_code=True)
    after = extract(teacher, task.train)
    expected = extract(teacher, task.train, cache=False)
    np.testing.assert_array_equal(after.features, expected.features)
    assert np.abs(after.features - before.features).max() > 0.1


def test_modules_with_the_same_weights_and_other_code_have_other_features(write: Write) -> None:
    keys = []
    for layers in (LAYERS, LAYERS.replace("ReLU", "Sigmoid"), LAYERS):
        write(layers=layers)
        module = importlib.import_module("changing_module").make()
        teacher = Teacher.from_module(
            module, name="m", classes=module.classes, preprocessing=module.preprocessing
        )
        keys.append(cache_key(teacher.card, make_task().train))
    assert keys[0] == keys[2] != keys[1]
