"""Weights that do not fit their network are refused: nothing is filled in at random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.conftest import CLASSES
from tests.zoo.source_check import SMALL
from tests.zoo.state_dicts import resnet_state, without


def add_timm(zoo: Zoo, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    torch.save(tensors, folder / "w.pth")
    zoo.add("timm:test_resnet", name="t", weights=folder / "w.pth", classes=CLASSES, preprocessing=SMALL)


def infinite_bias() -> dict[str, torch.Tensor]:
    tensors = resnet_state(3)
    tensors["fc.bias"][1] = torch.inf
    return tensors


REFUSED = {
    "for other classes": (
        lambda: resnet_state(10),
        r"does not fit timm:test_resnet \(other shapes: fc.weight is \(10, 96\), not \(3, 96\), fc.bias",
    ),
    "without a head": (
        lambda: without(resnet_state(3), "fc.weight", "fc.bias"),
        r"missing: fc.weight, fc.bias\): nothing is filled in at random",
    ),
    "of another network": (
        lambda: {**without(resnet_state(3), "conv1.0.weight", "conv1.weight"), "extra": torch.ones(1)},
        r"missing: conv1.*left over: extra",
    ),
    "not finite": (infinite_bias, r"not finite, in fc.bias"),
}


@pytest.mark.parametrize(("tensors", "reason"), REFUSED.values(), ids=REFUSED)
def test_weights_that_do_not_fit_are_refused(
    zoo: Zoo, tmp_path: Path, tensors: Callable[[], dict[str, torch.Tensor]], reason: str
) -> None:
    with pytest.raises(PreceptorError, match=reason):
        add_timm(zoo, tensors(), tmp_path)


def test_only_batch_counters_may_be_missing(zoo: Zoo, tmp_path: Path) -> None:
    tensors = {
        name: value for name, value in resnet_state(3).items() if not name.endswith("num_batches_tracked")
    }
    assert len(tensors) < len(resnet_state(3))
    add_timm(zoo, tensors, tmp_path)
    assert zoo.verify("t") == []
