"""Published weights come whole and with their own classes, random ones only when asked for."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch
import torchvision

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.sources import timm as timm_source
from tests.zoo.conftest import CLASSES
from tests.zoo.source_check import SMALL
from tests.zoo.state_dicts import resnet_state, without

each_framework = pytest.mark.parametrize("source", ["timm:test_resnet", "torchvision:resnet18"])


@each_framework
def test_published_weights_never_get_a_head_for_other_classes(zoo: Zoo, source: str) -> None:
    with pytest.raises(
        PreceptorError, match="published with 1000 classes and 3 names came: a head for other"
    ):
        zoo.add(source, name="t", classes=CLASSES)


@each_framework
def test_a_weights_file_needs_the_names_of_its_classes(zoo: Zoo, tmp_path: Path, source: str) -> None:
    torch.save(resnet_state(3), tmp_path / "w.pth")
    with pytest.raises(PreceptorError, match="does not name its classes: give the class names"):
        zoo.add(source, name="t", weights=tmp_path / "w.pth")


def test_random_weights_come_only_when_asked_for_and_the_card_says_so(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", no_network)
    with pytest.raises(
        PreceptorError, match=r"could not be fetched \(no route to host\).*give --weights FILE"
    ):
        zoo.add("timm:test_resnet", name="t")
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", no_network)
    with pytest.raises(PreceptorError, match=r"could not be fetched \(no route to host\)"):
        zoo.add("torchvision:resnet18", name="t")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    with pytest.raises(PreceptorError, match="hf:some/model could not be fetched"):
        zoo.add("hf:some/model", name="t")
    assert zoo.names() == []
    card = zoo.add("timm:test_resnet", name="t", untrained=True, classes=CLASSES, preprocessing=SMALL)
    assert not card.trained
    assert not zoo.listing()[0]["trained"]


@each_framework
def test_random_weights_and_a_file_of_them_are_told_apart(zoo: Zoo, tmp_path: Path, source: str) -> None:
    torch.save(resnet_state(3), tmp_path / "w.pth")
    with pytest.raises(
        PreceptorError,
        match=r"--untrained asks for random weights and --weights for those of 'w.pth'; leave one",
    ):
        zoo.add(source, name="u", untrained=True, weights=tmp_path / "w.pth", classes=CLASSES)


def test_published_weights_from_the_hub_are_loaded_strictly(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = timm.create_model("test_resnet").eval()
    safetensors.torch.save_file(own.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_: str(tmp_path / "model.safetensors"))
    card = zoo.add("timm:test_resnet", name="t")
    assert card.trained
    assert len(card.classes) == 1000
    inputs = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(zoo.load("t").logits(inputs), own(inputs).detach())
    safetensors.torch.save_file(without(own.state_dict(), "fc.weight"), tmp_path / "model.safetensors")
    with pytest.raises(PreceptorError, match=r"missing: fc.weight"):
        zoo.add("timm:test_resnet", name="u")


def test_timm_models_without_a_classifier_are_refused(zoo: Zoo) -> None:
    with pytest.raises(PreceptorError, match="published without a classifier"):
        zoo.add("timm:vit_small_patch14_dinov2.lvd142m", name="t")


def test_a_card_cannot_ask_timm_for_anything_else() -> None:
    with pytest.raises(PreceptorError, match="which a zoo never stores"):
        timm_source._build("test_resnet", {"num_classes": 3, "checkpoint_path": "/tmp/evil.pth"})
