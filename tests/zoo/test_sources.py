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


def test_a_network_that_cannot_take_the_stated_input_is_refused(zoo: Zoo, run: Path) -> None:
    wrong = Preprocessing.for_size((5, 16, 16))
    with pytest.raises(PreceptorError, match=r"cannot take inputs of \(5, 16, 16\); correct --input-size"):
        zoo.add(f"run:{run}", name="t", preprocessing=wrong)
