"""Small ONNX files, with the heads that such graphs differ in."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.zoo.source_check import INPUTS


class Small(nn.Module):
    """Has what onnx graphs differ in: a Gemm, or a MatMul with an Add, or none."""

    def __init__(self, kind: str, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.conv = nn.Conv2d(3, 6, 3, 2)
        self.fc = nn.Linear(6, classes, bias=kind != "matmul")
        self.head = nn.Conv2d(6, classes, 1)

    def features(self, x: Tensor) -> Tensor:
        return self.conv(x).relu().mean((2, 3))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.kind in ("conv", "conv-relu"):
            positions = self.head(self.conv(x).relu())
            return (positions.relu() if self.kind == "conv-relu" else positions).mean((2, 3))
        features = self.features(x)
        if self.kind == "matmul-add":
            return features @ self.fc.weight.T + self.fc.bias
        if self.kind == "cosine":
            return nn.functional.linear(
                nn.functional.normalize(features, dim=1), nn.functional.normalize(self.fc.weight, dim=1)
            )
        if self.kind == "two":
            return self.fc(features), self.fc(2 * features)
        logits = self.fc(features)
        return logits.softmax(1) if self.kind == "softmax" else logits


def export(
    kind: str,
    path: Path,
    batch: int | str = "batch",
    precision: torch.dtype = torch.float32,
    classes: int = 3,
) -> Small:
    """With torch's older exporter, which is quick."""
    pytest.importorskip("onnxruntime")
    model = Small(kind, classes).to(precision).eval()
    axes = {"x": {0: batch}} if isinstance(batch, str) else None
    rows = 2 if isinstance(batch, str) else batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (INPUTS[:rows].to(precision),),
            path,
            dynamo=False,
            input_names=["x"],
            dynamic_axes=axes,
            do_constant_folding=False,
        )
    return model
