"""A source that can give no teacher is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Preprocessing, Zoo


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("resnet18", "is no source of a teacher"),
        ("timm:", "is no source of a teacher"),
        ("keras:resnet", "no kind of teacher 'keras'"),
        ("timm:resnet19", "timm has no model 'resnet19'; did you mean"),
        ("torchvision:resnet19", "torchvision has no classifier 'resnet19'; did you mean"),
        ("torchvision:fasterrcnn_resnet50_fpn", "torchvision has no classifier"),
        ("hf:no/such/folder", "no folder 'no/such/folder'"),
        ("onnx:no.onnx", "no ONNX file 'no.onnx'"),
        ("run:nowhere", "no file 'nowhere/config.json'"),
    ],
)
def test_unknown_sources_are_refused(zoo: Zoo, source: str, reason: str) -> None:
    with pytest.raises(PreceptorError, match=reason):
        zoo.add(source, name="t")
    assert zoo.names() == []


def test_one_text_for_the_class_names_is_answered_with_a_list(zoo: Zoo, run: Path) -> None:
    with pytest.raises(
        PreceptorError, match="no label set 'cat,dog' is known; give a list of class names, or imagenet-1k"
    ):
        zoo.add(f"run:{run}", name="t", classes="cat,dog")


@pytest.mark.parametrize("given", ["~/run", "~/other/../run", "."])
def test_a_card_keeps_the_name_of_a_local_source_and_not_its_place(
    zoo: Zoo, run: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(run.parent))
    (run.parent / "other").mkdir()
    monkeypatch.chdir(run)
    assert zoo.add(f"run:{given}", name="t").source.reference == "run"


def test_a_refused_name_comes_with_the_characters_that_will_do(zoo: Zoo, run: Path) -> None:
    with pytest.raises(
        PreceptorError, match=r"'ünï' cannot be a teacher's name: use up to 128 of a-z, A-Z, 0-9,"
    ):
        zoo.add(f"run:{run}", name="ünï")


def test_a_network_that_cannot_take_the_stated_input_is_refused(zoo: Zoo, run: Path) -> None:
    wrong = Preprocessing.for_size((5, 16, 16))
    with pytest.raises(PreceptorError, match=r"cannot take inputs of \(5, 16, 16\); correct --input-size"):
        zoo.add(f"run:{run}", name="t", preprocessing=wrong)
