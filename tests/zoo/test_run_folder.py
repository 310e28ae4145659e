"""A teacher from a run folder is the student that was trained there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.models import build
from preceptor.zoo import Zoo
from tests.zoo.conftest import make_run
from tests.zoo.source_check import INPUTS, SMALL, check


def test_run(zoo: Zoo, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", seed=3, arch="wrn-10-1", input_shape=(3, 32, 32))
    (folder / "result.json").write_text('{"accuracy": 0.75}')
    own = build("wrn-10-1", 3, (3, 32, 32), seed=3).eval()
    card = zoo.add(f"run:{folder}", name="t")
    assert card.accuracy == 0.75
    assert card.preprocessing == SMALL
    expected = own.outputs(INPUTS)
    teacher = check(zoo, "t", expected.features, expected.logits, own.classifier.weight)
    maps = teacher.outputs(INPUTS).maps
    assert len(maps) == len(expected.maps) > 1
    for came, own_map in zip(maps, expected.maps, strict=True):
        torch.testing.assert_close(came, own_map.detach())


def test_run_on_vectors(zoo: Zoo, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", arch="mlp-8", input_shape=(7,), mean=None, std=None)
    zoo.add(f"run:{folder}", name="t")
    inputs = torch.randn(4, 7)
    expected = build("mlp-8", 3, (7,), seed=0).eval().outputs(inputs)
    torch.testing.assert_close(zoo.load("t").features(inputs), expected.features.detach())


def test_run_of_an_own_class(zoo: Zoo, run: Path) -> None:
    config = (run / "config.json").read_text()
    (run / "config.json").write_text(config.replace("cnn-4", "python:mine.MyNet"))
    with pytest.raises(
        PreceptorError, match=r"your own class mine.MyNet.*python:module:factory with --weights .*/run/mo"
    ):
        zoo.add(f"run:{run}", name="t")
    (run / "config.json").write_text(config.replace("[0.5, 0.5, 0.5]", "[0.5]"))
    with pytest.raises(PreceptorError, match=r"no valid preprocessing: mean has 1 numbers for 3 channels"):
        zoo.add(f"run:{run}", name="t")


def test_run_weights_are_loaded_strictly(zoo: Zoo, run: Path) -> None:
    config = (run / "config.json").read_text()
    (run / "config.json").write_text(config.replace('"cat"', '"cat", "dog"'))
    with pytest.raises(PreceptorError, match=r"does not fit cnn-4.*classifier.weight is"):
        zoo.add(f"run:{run}", name="t")
    (run / "config.json").write_text("{}")
    with pytest.raises(PreceptorError, match="lacks arch, classes, input_shape"):
        zoo.add(f"run:{run}", name="t")
    (run / "config.json").write_text("[")
    with pytest.raises(PreceptorError, match="is no JSON"):
        zoo.add(f"run:{run}", name="t")
