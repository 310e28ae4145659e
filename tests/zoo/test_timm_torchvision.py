"""A teacher from timm or torchvision gives exactly what the framework gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
import torchvision

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.conftest import CLASSES
from tests.zoo.source_check import INPUTS, SMALL, check


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
    assert bool(teacher.card.head.maps) == (arch == "test_resnet")
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
    assert teacher.card.head.maps


def test_torchvision_preprocessing_is_that_of_the_weights_version(zoo: Zoo) -> None:
    first = zoo.add("torchvision:mobilenet_v2@IMAGENET1K_V1", name="v1", untrained=True).preprocessing
    second = zoo.add("torchvision:mobilenet_v2@IMAGENET1K_V2", name="v2", untrained=True).preprocessing
    assert (first.resize, second.resize) == (256, 232)
    assert first.input_size == second.input_size == (3, 224, 224)
    with pytest.raises(PreceptorError, match=r"has weights IMAGENET1K_V1.*not 'V9'"):
        zoo.add("torchvision:mobilenet_v2@V9", name="v9", untrained=True)
