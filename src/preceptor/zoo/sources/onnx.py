"""Teachers out of an ONNX file. The file is kept as it is and runs on onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from preceptor.core import PreceptorError
from preceptor.zoo.card import ONNX_FILE, ONNX_METADATA_KEY, Card
from preceptor.zoo.onnx_graph import read_onnx
from preceptor.zoo.onnx_network import OnnxNetwork
from preceptor.zoo.preprocessing import as_preprocessing
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes


def fetch(request: Request) -> Candidate:
    """Read the graph with all its weights; class names and preprocessing are given, or in its metadata."""
    request.refuse("trust_code", "untrained", "weights", "linear_head")
    model = read_onnx(request.reference)
    inputs = [
        entry for entry in model.graph.input if entry.name not in {t.name for t in model.graph.initializer}
    ]
    if len(inputs) != 1:
        raise PreceptorError(f"the ONNX graph has {len(inputs)} inputs; a teacher has one, the images")
    metadata = _metadata(model)
    classes = need_classes(request, metadata.get("classes"), "an ONNX file does not name its classes")
    preprocessing = request.preprocessing or as_preprocessing(metadata.get("preprocessing"))
    if preprocessing is None:
        raise PreceptorError(
            "an ONNX file does not say how its images are prepared: give --mean and --std (and --input-size, "
            "--resize, --crop where they matter)"
        )
    wanted = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim][1:]
    fits = len(wanted) == len(preprocessing.input_size) and all(
        want in (0, have) for want, have in zip(wanted, preprocessing.input_size, strict=True)
    )
    if not fits:
        raise PreceptorError(
            f"the ONNX graph takes inputs of {tuple(wanted)} (0: any) and the preprocessing gives "
            f"{preprocessing.input_size}; correct --input-size"
        )
    return Candidate(model.SerializeToString(), classes, preprocessing)


def input_size(path: str | Path) -> tuple[int, ...] | None:
    """The input size an ONNX file fixes, ``(C, H, W)`` or ``(d,)``; None where it leaves one open."""
    graph = read_onnx(path).graph
    names = {tensor.name for tensor in graph.initializer}
    entry = next((e for e in graph.input if e.name not in names), None)
    sides = [] if entry is None else [dim.dim_value for dim in entry.type.tensor_type.shape.dim][1:]
    return tuple(sides) if sides and all(sides) else None


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """The network of the stored file."""
    return OnnxNetwork(files[ONNX_FILE])


def _metadata(model: Any) -> dict[str, Any]:
    for entry in model.metadata_props:
        if entry.key == ONNX_METADATA_KEY:
            try:
                value = json.loads(entry.value)
            except ValueError as error:
                raise PreceptorError(
                    f"the ONNX file's metadata {ONNX_METADATA_KEY!r} is no JSON: {error}"
                ) from error
            return _checked(value)
    return {}


def _checked(value: Any) -> dict[str, Any]:
    """The metadata, if its class names are names; its preprocessing is checked where it is read."""
    classes = value.get("classes", []) if isinstance(value, dict) else None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise PreceptorError(
            f"the ONNX file's metadata {ONNX_METADATA_KEY!r} is none of preceptor's: expected an object with a list "
            "of names under 'classes'; write the file again with preceptor export, or take this metadata out"
        )
    return value
