"""A teacher from every source gives exactly what the source's own framework gives."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.models import build
from preceptor.zoo import Preprocessing, Teacher, Zoo
from tests.zoo.conftest import CLASSES, make_run

SMALL = Preprocessing.for_size((3, 32, 32), (0.5,) * 3, (0.25,) * 3)
INPUTS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def check(
    zoo: Zoo, name: str, features: Tensor, logits: Tensor, weight: Tensor, inputs: Tensor = INPUTS
) -> Teacher:
    """The stored teacher against the framework's own features, logits and classifier rows."""
    teacher = zoo.load(name, trust_code=True)
    output = teacher.outputs(inputs)
    torch.testing.assert_close(output.features, features.detach())
    torch.testing.assert_close(output.logits, logits.detach())
    torch.testing.assert_close(teacher.classifier, weight.detach())
    if teacher.card.centers_source == "classifier":
        torch.testing.assert_close(
            teacher.centers, weight.detach() / weight.detach().norm(dim=1, keepdim=True)
        )
    assert not output.logits.requires_grad
    assert not teacher.train().training
    assert zoo.verify(name, trust_code=True) == []
    return teacher


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("arch", ["test_resnet", "test_vit"])
def test_timm(zoo: Zoo, tmp_path: Path, arch: str, suffix: str) -> None:
    options = {"img_size": 32} if arch == "test_vit" else {}
    own = timm.create_model(arch, num_classes=3, **options).eval()
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": {f"module.{k}": v for k, v in own.state_dict().items()}, "epoch": 3}, path)
    else:
        safetensors.torch.save_file(own.state_dict(), path)
    card = zoo.add(f"timm:{arch}", name="t", weights=path, classes=CLASSES, preprocessing=SMALL)
    assert card.classes == CLASSES
    assert card.trained
    features = own.forward_head(own.forward_features(INPUTS), pre_logits=True)
    teacher = check(zoo, "t", features, own(INPUTS), own.get_classifier().weight)
    assert teacher.has_maps == (arch == "test_resnet")
    assert teacher.runs_on == "torch"


def test_timm_preprocessing_is_the_models_own(zoo: Zoo) -> None:
    card = zoo.add("timm:test_resnet", name="t", untrained=True)
    assert card.preprocessing.input_size == (3, 160, 160)
    assert card.preprocessing.resize == int(160 / 0.95)
    assert card.preprocessing.interpolation == "bilinear"
    assert card.preprocessing.mean == timm.get_pretrained_cfg("test_resnet").mean
    assert len(card.classes) == 1000
    assert card.classes[1] == "goldfish"
    assert not card.trained


@pytest.mark.parametrize("arch", ["resnet18", "mobilenet_v2"])
def test_torchvision(zoo: Zoo, tmp_path: Path, arch: str) -> None:
    own = torchvision.models.get_model(arch, weights=None, num_classes=3).eval()
    torch.save(own.state_dict(), tmp_path / "w.pth")
    zoo.add(f"torchvision:{arch}", name="t", weights=tmp_path / "w.pth", classes=CLASSES, preprocessing=SMALL)
    head = own.fc if arch == "resnet18" else own.classifier[1]
    caught = []
    handle = head.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
    logits = own(INPUTS)
    handle.remove()
    teacher = check(zoo, "t", caught[0], logits, head.weight)
    assert teacher.has_maps


def test_torchvision_preprocessing_is_that_of_the_weights_version(zoo: Zoo) -> None:
    first = zoo.add("torchvision:mobilenet_v2@IMAGENET1K_V1", name="v1", untrained=True).preprocessing
    second = zoo.add("torchvision:mobilenet_v2@IMAGENET1K_V2", name="v2", untrained=True).preprocessing
    assert (first.resize, second.resize) == (256, 232)
    assert first.input_size == second.input_size == (3, 224, 224)
    with pytest.raises(PreceptorError, match=r"has weights IMAGENET1K_V1.*not 'V9'"):
        zoo.add("torchvision:mobilenet_v2@V9", name="v9", untrained=True)


def tiny_hf(folder: Path, kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    labels = dict(enumerate(CLASSES))
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
            patch_size=8, id2label=labels, label2id={v: k for k, v in labels.items()},
        )  # fmt: skip
        processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    else:
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=labels,
            label2id={v: k for k, v in labels.items()},
        )  # fmt: skip
        processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_hf(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    own = tiny_hf(tmp_path / "hf", kind)
    card = zoo.add(f"hf:{tmp_path / 'hf'}", name="t")
    assert card.classes == CLASSES
    assert str(tmp_path) not in card.model_dump_json()
    with torch.no_grad():
        if kind == "vit":
            features = own.vit(INPUTS).last_hidden_state[:, 0]
            head = own.classifier
        else:
            features = own.resnet(INPUTS).pooler_output.flatten(1)
            head = own.classifier[-1]
        check(zoo, "t", features, own(INPUTS).logits, head.weight)


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_hf_preprocessing_agrees_with_its_processor(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    from PIL import Image
    from transformers import AutoImageProcessor

    tiny_hf(tmp_path / "hf", kind)
    preprocessing = zoo.add(f"hf:{tmp_path / 'hf'}", name="t").preprocessing
    pixels = smooth_image(45, 60)
    expected = AutoImageProcessor.from_pretrained(tmp_path / "hf")(
        Image.fromarray(pixels), return_tensors="pt"
    )
    came = preprocessing.apply([torch.from_numpy(pixels).permute(2, 0, 1)])
    torch.testing.assert_close(came, expected["pixel_values"], atol=0.02, rtol=0)


def smooth_image(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width] / 10
    return np.stack([128 + 100 * np.sin(x + c) * np.cos(y - c) for c in range(3)], -1).astype(np.uint8)


class Small(nn.Module):
    """Has what onnx graphs differ in: a Gemm, or a MatMul with an Add, or none."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.conv = nn.Conv2d(3, 6, 3, 2)
        self.fc = nn.Linear(6, 3, bias=kind != "matmul")
        self.head = nn.Conv2d(6, 3, 1)

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


def export(kind: str, path: Path, batch: int | str = "batch") -> Small:
    """With torch's older exporter, which is quick."""
    pytest.importorskip("onnxruntime")
    model = Small(kind).eval()
    axes = {"x": {0: batch}} if isinstance(batch, str) else None
    rows = 2 if isinstance(batch, str) else batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (INPUTS[:rows],),
            path,
            dynamo=False,
            input_names=["x"],
            dynamic_axes=axes,
            do_constant_folding=False,
        )
    return model


@pytest.mark.parametrize("batch", ["batch", 1, 2])
@pytest.mark.parametrize("kind", ["gemm", "matmul", "matmul-add", "conv"])
def test_onnx(zoo: Zoo, tmp_path: Path, kind: str, batch: int | str) -> None:
    own = export(kind, tmp_path / "m.onnx", batch)
    zoo.add(f"onnx:{tmp_path / 'm.onnx'}", name="t", classes=CLASSES, preprocessing=SMALL)
    weight = own.head.weight.flatten(1) if kind == "conv" else own.fc.weight
    teacher = check(zoo, "t", own.features(INPUTS), own(INPUTS), weight)
    assert teacher.runs_on == "onnx"
    assert not teacher.has_maps


def test_onnx_of_torchs_newer_exporter_with_its_weights_in_a_file_beside(zoo: Zoo, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    own = Small("gemm").eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(own, (INPUTS,), tmp_path / "m.onnx", dynamo=True, external_data=True, verbose=False)
    assert (tmp_path / "m.onnx.data").exists()
    zoo.add(f"onnx:{tmp_path / 'm.onnx'}", name="t", classes=CLASSES, preprocessing=SMALL)
    (tmp_path / "m.onnx.data").unlink()
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
def test_onnx_heads_that_are_not_linear_are_refused(zoo: Zoo, tmp_path: Path, kind: str, reason: str) -> None:
    export(kind, tmp_path / "m.onnx")
    with pytest.raises(PreceptorError, match=reason):
        zoo.add(f"onnx:{tmp_path / 'm.onnx'}", name="t", classes=CLASSES, preprocessing=SMALL)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "sub/file", ""])
def test_onnx_weights_are_read_from_its_own_folder_only(zoo: Zoo, tmp_path: Path, location: str) -> None:
    import onnx

    export("gemm", tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=location)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(PreceptorError, match="only files beside it are read"):
        zoo.add(f"onnx:{tmp_path / 'm.onnx'}", name="t", classes=CLASSES, preprocessing=SMALL)


def test_onnx_needs_names_and_preprocessing_or_carries_them(zoo: Zoo, tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "m.onnx"
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


def test_run(zoo: Zoo, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", seed=3, arch="wrn-10-1", input_shape=(3, 32, 32))
    (folder / "result.json").write_text('{"accuracy": 0.75}')
    own = build("wrn-10-1", 3, (3, 32, 32), seed=3).eval()
    card = zoo.add(f"run:{folder}", name="t")
    assert card.accuracy == 0.75
    assert card.preprocessing == Preprocessing.for_size((3, 32, 32), (0.5,) * 3, (0.25,) * 3)
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


def test_run_brings_the_centres_stored_after_training(zoo: Zoo, run: Path) -> None:
    centers = torch.randn(3, 16)
    safetensors.torch.save_file({"centers": centers}, run / "centers.safetensors")
    assert zoo.add(f"run:{run}", name="t").centers_source == "stored"
    torch.testing.assert_close(zoo.load("t").centers, centers)


FACTORY = """
import torch
from torch import nn
from preceptor.zoo import Preprocessing
open("imported", "w").close()

def make():
    torch.manual_seed(7)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    net.classes = ["ant", "bee", "cat"]
    net.preprocessing = Preprocessing.for_size((3, 32, 32))
    return net

def wrong():
    return "no network"


def failing():
    raise RuntimeError("no licence")
"""


def test_python(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "teacher_factory_a.py").write_text(FACTORY)
    (tmp_path / "teacher_factory_b.py").write_text("absent\n")
    source = "python:teacher_factory_a:make"
    with pytest.raises(PreceptorError, match="runs code of that module; say --trust-code"):
        zoo.add(source, name="t")
    assert not (tmp_path / "imported").exists()
    zoo.add(source, name="t", trust_code=True)
    import teacher_factory_a

    own = teacher_factory_a.make().eval()
    check(zoo, "t", own[:4](INPUTS), own(INPUTS), own[4].weight)
    with pytest.raises(PreceptorError, match="--trust-code"):
        zoo.load("t")
    assert "--trust-code" in zoo.verify("t")[0]
    for source, reason in (
        ("python:teacher_factory_a:wrong", "returned str; expected a torch nn.Module"),
        ("python:teacher_factory_a:absent", "cannot be imported"),
        ("python:no_such_module:make", "cannot be imported"),
        ("python:teacher_factory_a", "write python:module:factory"),
        (
            "python:teacher_factory_a:failing",
            r"made no network: RuntimeError: no licence \(teacher_factory_a.py, line \d+\)",
        ),
        (
            "python:teacher_factory_b:make",
            r"cannot be imported: NameError: .*\(teacher_factory_b.py, line 1\)",
        ),
    ):
        with pytest.raises(PreceptorError, match=reason):
            zoo.add(source, name="u", trust_code=True)


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
