"""Reading an ONNX classifier: its last linear layer, and the graph with the features as an output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from preceptor.core import PreceptorError
from preceptor.files import local_path
from preceptor.zoo.limits import MAX_FILE_BYTES, check_size

MAX_PROTOBUF = 2**31 - 1
# What may stand between the linear layer and the graph's output without changing the numbers.
_SHAPE_ONLY = {"Identity", "Flatten", "Reshape", "Squeeze", "Dropout"}
_MEANS = {"GlobalAveragePool", "ReduceMean"}
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


@dataclass(frozen=True)
class OnnxHead:
    """Gemm, MatMul or 1x1 Conv whose ``features @ weight.T + bias``, averaged over pixels, are the logits."""

    features: str  # the tensor that goes into it
    weight: np.ndarray  # (C, d)
    bias: np.ndarray | None  # (C,)
    convolution: bool
    element_type: int  # of features and stored weights, as ONNX numbers its types


def read_onnx(path: str | Path) -> onnx.ModelProto:
    """Load a model; weights in files beside it are taken in, from its own folder only."""
    path = local_path(path)
    if not path.is_file():
        raise PreceptorError(f"no ONNX file {str(path)!r}")
    check_size(f"ONNX file {path.name!r}", path.stat().st_size, min(MAX_FILE_BYTES, MAX_PROTOBUF))
    model = parse_onnx(path.read_bytes(), path.name)
    total = 0
    for tensor in onnx.external_data_helper._get_all_tensors(model):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        beside = path.parent / location
        if (
            PurePosixPath(location).name != location
            or "\\" in location
            or beside.is_symlink()
            or not location
        ):
            raise PreceptorError(
                f"ONNX file {path.name!r} points to weights at {location!r}; only files beside it are read"
            )
        if not beside.is_file():
            raise PreceptorError(f"ONNX file {path.name!r} needs its weights file {location!r} beside it")
        total = max(total, beside.stat().st_size)
        check_size(f"weights file {location!r}", total, MAX_PROTOBUF)
    if total:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
        for tensor in onnx.external_data_helper._get_all_tensors(model):
            if onnx.external_data_helper.uses_external_data(tensor):
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
        check_size(f"ONNX file {path.name!r} with its weights", model.ByteSize(), MAX_PROTOBUF)
    return model


def parse_onnx(data: bytes, name: str) -> onnx.ModelProto:
    """An ONNX model out of its bytes, with nothing read from elsewhere."""
    try:
        model = onnx.load_from_string(data)
    except Exception as error:  # protobuf's DecodeError has no stable home
        raise PreceptorError(f"{name!r} is no ONNX file, or a broken one") from error
    if not model.graph.node:
        raise PreceptorError(f"{name!r} is no ONNX file, or an empty one")
    return model


def find_onnx_head(model: onnx.ModelProto) -> OnnxHead:
    """Walk back from the only output to the linear layer that makes it; refuses anything in between."""
    graph = model.graph
    if len(graph.output) != 1:
        names = ", ".join(output.name for output in graph.output)
        raise PreceptorError(
            f"the ONNX graph has {len(graph.output)} outputs ({names}), so several heads; export one"
        )
    producers = {name: node for node in graph.node for name in node.output}
    constants = _constants(graph)
    tensor, bias, pooled = graph.output[0].name, None, False
    while True:
        node = producers.get(tensor)
        if node is None:
            raise PreceptorError("no Gemm, MatMul or 1x1 Conv makes the ONNX graph's output")
        if node.op_type in _SHAPE_ONLY or (node.op_type == "Cast" and _cast_to(node) in FLOATS):
            tensor = node.input[0]
        elif node.op_type in _MEANS:
            tensor, pooled = node.input[0], True
        elif node.op_type == "Add" and bias is None and any(name in constants for name in node.input):
            constant = next(name for name in node.input if name in constants)
            tensor, bias = next(name for name in node.input if name != constant), constants[constant]
        elif node.op_type in ("Gemm", "MatMul", "Conv"):
            head = _linear(node, constants, bias)
            if pooled and not head.convolution:
                raise PreceptorError(
                    "the ONNX graph averages over tokens after its last linear layer; not supported"
                )
            return head
        else:
            raise PreceptorError(
                f"the ONNX graph's output comes out of {node.op_type}, not of a linear layer: export "
                "the logits "
                "(no softmax, no activation after the last layer)"
            )


def with_features(model: onnx.ModelProto, head: OnnxHead) -> onnx.ModelProto:
    """A copy of the model that also returns what goes into its head."""
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    extended.graph.output.append(onnx.helper.make_tensor_value_info(head.features, head.element_type, None))
    return extended


def _constants(graph: Any) -> dict[str, np.ndarray]:
    """Initialisers, constants, and what is only a transposed or renamed one, or one of another precision."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            values = [a.t for a in node.attribute if a.name == "value"]
            if values:
                found[node.output[0]] = numpy_helper.to_array(values[0])
        elif node.op_type in ("Identity", "Transpose") and node.input[0] in found:
            source = found[node.input[0]]
            order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
            found[node.output[0]] = source if node.op_type == "Identity" else np.transpose(source, order)
        elif node.op_type == "Cast" and node.input[0] in found and _cast_to(node) in FLOATS:
            precision = onnx.helper.tensor_dtype_to_np_dtype(_cast_to(node))
            found[node.output[0]] = found[node.input[0]].astype(precision)
    return found


def _cast_to(node: Any) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)


def _linear(node: Any, constants: dict[str, np.ndarray], added: np.ndarray | None) -> OnnxHead:
    """Weights ``(C, d)`` and bias of a Gemm, MatMul or Conv node."""
    options = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if len(node.input) < 2 or node.input[1] not in constants:
        raise PreceptorError(
            f"the weights of the ONNX graph's last {node.op_type} are computed (a cosine, normalised "
            "or quantised "
            "head), not stored; not supported"
        )
    weight = constants[node.input[1]]
    element_type = onnx.helper.np_dtype_to_tensor_dtype(weight.dtype)  # both factors have the same
    bias = constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if len(node.input) > 2 and node.input[2] and bias is None:
        raise PreceptorError(
            f"the bias of the ONNX graph's last {node.op_type} is computed, not stored; not supported"
        )
    if node.op_type == "Conv":
        if (
            weight.ndim != 4
            or weight.shape[2:] != (1, 1)
            or options.get("group", 1) != 1
            or any(options.get("pads", [0]))
        ):
            raise PreceptorError(
                f"the ONNX graph ends in a Conv of shape {weight.shape}; only 1x1 is a classifier"
            )
        weight = weight[:, :, 0, 0]
    else:
        transposed = bool(options.get("transB", 0))
        weight = (weight if transposed else weight.T) * np.float32(options.get("alpha", 1.0))
        if options.get("transA", 0) or weight.ndim != 2:
            raise PreceptorError(
                f"the ONNX graph's last {node.op_type} has weights of shape {weight.shape}; expected a matrix"
            )
        bias = None if bias is None else bias * np.float32(options.get("beta", 1.0))
    parts = [
        np.broadcast_to(part.reshape(-1), (weight.shape[0],)) for part in (bias, added) if part is not None
    ]
    total = np.asarray(np.sum(parts, axis=0, dtype=np.float32)) if parts else None
    weight = np.ascontiguousarray(weight, dtype=np.float32)
    return OnnxHead(node.input[0], weight, total, node.op_type == "Conv", element_type)
