"""A teacher from an ONNX file gives what the exported network gives, or is refused with the reason."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.zoo import Preprocessing, Zoo
from tests.zoo.conftest import CLASSES
from tests.zoo.onnx_models import Small, export
from tests.zoo.source_check import INPUTS, SMALL, check


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onnx"


def add(zoo: Zoo, path: Path, classes: tuple[str, ...] = CLASSES) -> None:
    zoo.add(f"onnx:{path}", name="t", classes=classes, preprocessing=SMALL)


@pytest.mark.parametrize("batch", ["batch", 1, 2])
@pytest.mark.parametrize("kind", ["gemm", "matmul", "matmul-add", "conv"])
def test_onnx(zoo: Zoo, path: Path, kind: str, batch: int | str) -> None:
    own = export(kind, path, batch)
    add(zoo, path)
    weight = own.head.weight.flatten(1) if kind == "conv" else own.fc.weight
    teacher = check(zoo, "t", own.features(INPUTS), own(INPUTS), weight)
    assert teacher.runs_on == "onnx"
    assert teacher.card.head.maps == ()


@pytest.mark.parametrize("kind", ["gemm", "matmul-add", "conv"])
def test_onnx_in_half_precision(zoo: Zoo, path: Path, kind: str) -> None:
    own = export(kind, path, precision=torch.float16)
    add(zoo, path)
    own.float()
    weight = own.head.weight.flatten(1) if kind == "conv" else own.fc.weight
    check(zoo, "t", own.features(INPUTS), own(INPUTS), weight, rtol=5e-3, atol=5e-3)
    assert zoo.card("t").parameters > 0


def test_onnx_with_half_inside_and_single_precision_outside(zoo: Zoo, path: Path) -> None:
    own = export("gemm", path, precision=torch.float16)
    import onnx

    model = onnx.load(path)
    nodes, (shown,), (given,) = model.graph.node, model.graph.input, model.graph.output
    nodes[0].input[0], nodes[-1].output[0] = "half_in", "half_out"
    nodes.insert(0, onnx.helper.make_node("Cast", [shown.name], ["half_in"], to=onnx.TensorProto.FLOAT16))
    nodes.append(onnx.helper.make_node("Cast", ["half_out"], [given.name], to=onnx.TensorProto.FLOAT))
    for entry in (shown, given):
        entry.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, path)
    add(zoo, path)
    own.float()
    check(zoo, "t", own.features(INPUTS), own(INPUTS), own.fc.weight, rtol=5e-3, atol=5e-3)


def test_onnx_of_bytes_is_refused(zoo: Zoo, path: Path) -> None:
    export("gemm", path)
    import onnx

    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    model.graph.node[0].input[0] = "numbers"
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["x"], ["numbers"], to=onnx.TensorProto.FLOAT))
    onnx.save(model, path)
    with pytest.raises(
        PreceptorError, match=r"takes tensor\(uint8\); a teacher takes float16, float32 or float64"
    ):
        add(zoo, path)


def test_a_single_output_is_no_classifier(zoo: Zoo, path: Path) -> None:
    export("gemm", path, classes=1)
    with pytest.raises(PreceptorError, match=r"1 class came; a teacher tells 2 or more apart.*regression"):
        add(zoo, path, classes=("price",))


def test_onnx_of_torchs_newer_exporter_with_its_weights_in_a_file_beside(zoo: Zoo, path: Path) -> None:
    pytest.importorskip("onnxscript")
    own = Small("gemm").eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(own, (INPUTS,), path, dynamo=True, external_data=True, verbose=False)
    assert path.with_suffix(".onnx.data").exists()
    add(zoo, path)
    path.with_suffix(".onnx.data").unlink()
    check(zoo, "t", own.features(INPUTS), own(INPUTS), own.fc.weight)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("softmax", "comes out of Softmax, not of a linear layer"),
        ("two", "2 outputs.*several heads"),
        ("cosine", "weights of the ONNX graph's last MatMul are computed|last Gemm are computed"),
        ("conv-relu", "comes out of Relu"),
    ],
)
def test_onnx_heads_that_are_not_linear_are_refused(zoo: Zoo, path: Path, kind: str, reason: str) -> None:
    export(kind, path)
    with pytest.raises(PreceptorError, match=reason):
        add(zoo, path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "sub/file", ""])
def test_onnx_weights_are_read_from_its_own_folder_only(zoo: Zoo, path: Path, location: str) -> None:
    import onnx

    export("gemm", path)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PreceptorError, match="only files beside it are read"):
        add(zoo, path)


def test_onnx_needs_names_and_preprocessing_or_carries_them(zoo: Zoo, path: Path) -> None:
    import onnx

    own = export("gemm", path)
    with pytest.raises(PreceptorError, match=r"does not name its classes.*--classes"):
        zoo.add(f"onnx:{path}", name="t", preprocessing=SMALL)
    with pytest.raises(PreceptorError, match=r"does not say how its images are prepared.*--mean"):
        zoo.add(f"onnx:{path}", name="t", classes=CLASSES)
    with pytest.raises(PreceptorError, match=r"takes inputs of \(3, 32, 32\).*gives \(3, 16, 16\)"):
        zoo.add(f"onnx:{path}", name="t", classes=CLASSES, preprocessing=Preprocessing.for_size((3, 16, 16)))
    model = onnx.load(path)
    about = {"classes": CLASSES, "preprocessing": SMALL.model_dump(mode="json")}
    model.metadata_props.add(key="preceptor", value=json.dumps(about))
    onnx.save(model, path)
    card = zoo.add(f"onnx:{path}", name="t")
    assert (card.classes, card.preprocessing) == (CLASSES, SMALL)
    check(zoo, "t", own.features(INPUTS), own(INPUTS), own.fc.weight)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"preprocessing": {"input_size": [3, 32]}}, "the preprocessing is not valid at input_size"),
        ({"preprocessing": 5}, "the preprocessing is not valid"),
        ({"classes": 5}, "expected an object with a list of names under 'classes'"),
        ({"classes": [1, 2, 3]}, "expected an object with a list of names under 'classes'"),
        ([], "expected an object with a list of names under 'classes'"),
    ],
)
def test_metadata_that_is_not_valid_is_told(zoo: Zoo, path: Path, about: object, message: str) -> None:
    import onnx

    export("gemm", path)
    model = onnx.load(path)
    model.metadata_props.add(key="preceptor", value=json.dumps(about))
    onnx.save(model, path)
    with pytest.raises(PreceptorError, match=message):
        zoo.add(f"onnx:{path}", name="t", classes=CLASSES)


def test_class_names_must_be_as_many_as_outputs(zoo: Zoo, path: Path) -> None:
    export("gemm", path)
    with pytest.raises(PreceptorError, match="has 3 outputs and 2 class names came"):
        add(zoo, path, classes=("a", "b"))
