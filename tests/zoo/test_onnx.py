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
