"""A teacher from a Hugging Face folder: as its framework has it, nothing random, none of its code run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.weights import parse_safetensors
from tests.zoo.attack import Attack
from tests.zoo.conftest import CLASSES, smooth_image
from tests.zoo.source_check import INPUTS, check
from tests.zoo.state_dicts import without
from tests.zoo.tampering import altered


def tiny_hf(folder: Path, kind: str) -> nn.Module:
    """A small classifier, saved with its processor as the framework saves it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    labels = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: i for i, name in enumerate(CLASSES)}}
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
            patch_size=8, **labels,
        )  # fmt: skip
        processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    else:
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **labels
        )
        processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_hf(tmp_path / "hf", "vit")
    return tmp_path / "hf"


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


def test_a_preprocessor_without_sense_is_told_in_one_sentence(zoo: Zoo, folder: Path) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "image_std": [0.0, 0.0, 0.0]}))
    with pytest.raises(PreceptorError, match=r"the preprocessor of .* is not valid.*: give --input-size"):
        zoo.add(f"hf:{folder}", name="t")


def save_hf(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_hf_weights_that_would_be_random_are_refused(zoo: Zoo, folder: Path) -> None:
    whole = parse_safetensors((folder / "model.safetensors").read_bytes(), "m")
    save_hf(folder, without(whole, "classifier.weight", "classifier.bias"))
    with pytest.raises(PreceptorError, match=r"do not fit.*missing keys: classifier.bias, classifier.weight"):
        zoo.add(f"hf:{folder}", name="t")
    save_hf(folder, {**whole, "classifier.weight": torch.randn(7, 16), "classifier.bias": torch.randn(7)})
    with pytest.raises(PreceptorError, match="classifier"):
        zoo.add(f"hf:{folder}", name="t")
    save_hf(folder, {**whole, "left.over": torch.ones(1)})
    with pytest.raises(PreceptorError, match=r"unexpected keys: left.over"):
        zoo.add(f"hf:{folder}", name="t")
    assert zoo.names() == []


def test_hf_code_is_never_run(zoo: Zoo, folder: Path, tmp_path: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("{", '{"auto_map": {"AutoConfig": "evil.Config"},', 1))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(PreceptorError, match="comes with its own code"):
        zoo.add(f"hf:{folder}", name="t")
    assert not (tmp_path / "ran").exists()


def test_hf_pickled_weights_are_read_as_plain_tensors_only(zoo: Zoo, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    own = tiny_hf(folder, "vit")
    (folder / "model.safetensors").unlink()
    with pytest.raises(PreceptorError, match=r"neither model.safetensors nor pytorch_model.bin"):
        zoo.add(f"hf:{folder}", name="t")
    torch.save(own.state_dict(), folder / "pytorch_model.bin")
    zoo.add(f"hf:{folder}", name="t")
    inputs = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(zoo.load("t").logits(inputs), own(inputs).logits.detach())
    with open(folder / "pytorch_model.bin", "wb") as file:
        pickle.dump(Attack(tmp_path / "ran"), file)
    with pytest.raises(PreceptorError, match="code in it is never run"):
        zoo.add(f"hf:{folder}", name="u")
    assert not (tmp_path / "ran").exists()


def test_hf_configuration_far_larger_than_the_weights_is_refused(zoo: Zoo, folder: Path) -> None:
    zoo.add(f"hf:{folder}", name="a")
    config = json.loads(zoo.storage.read("a", "hf_config.json", 10**6))
    config |= {"hidden_size": 2**16, "intermediate_size": 2**20}
    altered(zoo, {"hf_config.json": json.dumps(config).encode()})
    with pytest.raises(PreceptorError, match="far larger network than its weights fill"):
        zoo.load("x")
