"""A head left random where class counts differ, weights that are not what they seem: never unnoticed."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch
import torchvision

from preceptor.core import PreceptorError
from preceptor.zoo import Preprocessing, Zoo, limits
from preceptor.zoo.sources import timm as timm_source
from preceptor.zoo.weights import parse_safetensors, read_state_dict
from tests.zoo.conftest import CLASSES, make_run
from tests.zoo.test_sources import tiny_hf

SMALL = Preprocessing.for_size((3, 32, 32))


def state(num_classes: int) -> dict[str, torch.Tensor]:
    return timm.create_model("test_resnet", num_classes=num_classes).state_dict()


def add_timm(zoo: Zoo, tensors: Any, folder: Path, classes: tuple[str, ...] = CLASSES) -> None:
    torch.save(tensors, folder / "w.pth")
    zoo.add("timm:test_resnet", name="t", weights=folder / "w.pth", classes=classes, preprocessing=SMALL)


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if name not in names}


def test_weights_for_other_classes_are_refused_by_name_and_shape(zoo: Zoo, tmp_path: Path) -> None:
    reason = r"does not fit timm:test_resnet \(other shapes: fc.weight is \(10, 96\), not \(3, 96\), fc.bias"
    with pytest.raises(PreceptorError, match=reason):
        add_timm(zoo, state(10), tmp_path)


def test_weights_without_a_head_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    with pytest.raises(
        PreceptorError, match=r"missing: fc.weight, fc.bias\): nothing is filled in at random"
    ):
        add_timm(zoo, without(state(3), "fc.weight", "fc.bias"), tmp_path)


def test_weights_of_another_network_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    with pytest.raises(PreceptorError, match=r"missing: conv1.*left over: extra"):
        add_timm(
            zoo, {**without(state(3), "conv1.0.weight", "conv1.weight"), "extra": torch.ones(1)}, tmp_path
        )


def test_weights_that_are_not_finite_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    tensors = state(3)
    tensors["fc.bias"][1] = torch.inf
    with pytest.raises(PreceptorError, match=r"not finite, in fc.bias"):
        add_timm(zoo, tensors, tmp_path)


def test_only_batch_counters_may_be_missing(zoo: Zoo, tmp_path: Path) -> None:
    tensors = {name: value for name, value in state(3).items() if not name.endswith("num_batches_tracked")}
    assert len(tensors) < len(state(3))
    add_timm(zoo, tensors, tmp_path)
    assert zoo.verify("t") == []


@pytest.mark.parametrize("source", ["timm:test_resnet", "torchvision:resnet18"])
def test_published_weights_never_get_a_head_for_other_classes(zoo: Zoo, source: str) -> None:
    with pytest.raises(
        PreceptorError, match="published with 1000 classes and 3 names came: a head for other"
    ):
        zoo.add(source, name="t", classes=CLASSES)


@pytest.mark.parametrize("source", ["timm:test_resnet", "torchvision:resnet18"])
def test_a_weights_file_needs_the_names_of_its_classes(zoo: Zoo, tmp_path: Path, source: str) -> None:
    torch.save(state(3), tmp_path / "w.pth")
    with pytest.raises(PreceptorError, match="does not name its classes: give the class names"):
        zoo.add(source, name="t", weights=tmp_path / "w.pth")


def test_random_weights_come_only_when_asked_for_and_the_card_says_so(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    torch.save(state(3), tmp_path / "w.pth")
    with pytest.raises(PreceptorError, match="--weights means nothing"):
        zoo.add("timm:test_resnet", name="u", untrained=True, weights=tmp_path / "w.pth", classes=CLASSES)


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


def hf_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return parse_safetensors((folder / "model.safetensors").read_bytes(), "m")


def save_hf(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_hf_weights_that_would_be_random_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    tiny_hf(folder, "vit")
    whole = hf_tensors(folder)
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


def test_hf_code_is_never_run(zoo: Zoo, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    tiny_hf(folder, "vit")
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


def test_hf_configuration_far_larger_than_the_weights_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    import hashlib
    import json

    tiny_hf(tmp_path / "hf", "vit")
    card = json.loads(zoo.add(f"hf:{tmp_path / 'hf'}", name="t").model_dump_json())
    root = Path(zoo.url) / "t"
    config = json.loads((root / "hf_config.json").read_text()) | {
        "hidden_size": 2**16,
        "intermediate_size": 2**20,
    }
    data = json.dumps(config).encode()
    (root / "hf_config.json").write_bytes(data)
    card["files"]["hf_config.json"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (root / "card.json").write_text(json.dumps(card))
    with pytest.raises(PreceptorError, match="far larger network than its weights fill"):
        zoo.load("t")


def test_run_weights_are_loaded_strictly(zoo: Zoo, tmp_path: Path) -> None:
    run = make_run(tmp_path / "r")
    config = (run / "config.json").read_text()
    (run / "config.json").write_text(config.replace('"cat"', '"cat", "dog"'))
    with pytest.raises(PreceptorError, match=r"does not fit cnn-4.*classifier.weight is"):
        zoo.add(f"run:{run}", name="t")
    (run / "config.json").write_text("{}")
    with pytest.raises(PreceptorError, match="lacks arch, classes, input_shape"):
        zoo.add(f"run:{run}", name="t")
    (run / "config.json").write_text("[")
    with pytest.raises(PreceptorError, match="is no JSON"):
        zoo.add(f"run:{run}", name="t")


def test_class_names_must_be_as_many_as_outputs(zoo: Zoo, tmp_path: Path) -> None:
    from tests.zoo.test_sources import export

    export("gemm", tmp_path / "m.onnx")
    with pytest.raises(PreceptorError, match="has 3 outputs and 2 class names came"):
        zoo.add(f"onnx:{tmp_path / 'm.onnx'}", name="t", classes=["a", "b"], preprocessing=SMALL)


class Attack:
    """Touches a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["torch", "torch-nested", "torch-legacy", "pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".safetensors"])
def test_code_in_a_weights_file_is_never_run(zoo: Zoo, tmp_path: Path, form: str, suffix: str) -> None:
    path, ran = tmp_path / f"w{suffix}", tmp_path / "ran"
    attack = Attack(ran)
    if form == "pickle":
        path.write_bytes(pickle.dumps(attack))
    elif form == "torch-nested":
        torch.save({"state_dict": {**state(3), "more": attack}}, path)
    else:
        torch.save(attack, path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(PreceptorError, match=r"code in it is never run|is no safetensors file"):
        zoo.add("timm:test_resnet", name="t", weights=path, classes=CLASSES)
    assert not ran.exists()
    assert zoo.names() == []


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2**20)}, tmp_path / "stored.pth")
    with (
        zipfile.ZipFile(tmp_path / "stored.pth") as source,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w") as bomb,
    ):
        for entry in source.infolist():
            bomb.writestr(entry.filename, source.read(entry), compress_type=zipfile.ZIP_DEFLATED)
    assert (tmp_path / "bomb.pth").stat().st_size < 2**15
    with pytest.raises(PreceptorError, match="compressed archive"):
        read_state_dict(tmp_path / "bomb.pth")


def test_a_tensor_blown_up_out_of_a_small_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(2**40)}, tmp_path / "bomb.pth")
    assert (tmp_path / "bomb.pth").stat().st_size < 2**15
    with pytest.raises(PreceptorError, match="blows up 'w' out of a smaller storage"):
        read_state_dict(tmp_path / "bomb.pth")


def test_a_safetensors_header_that_lies_is_refused(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(PreceptorError, match="is no safetensors file, or a broken one"):
        read_state_dict(tmp_path / "w.safetensors")
    (tmp_path / "w.safetensors").write_bytes((2**60).to_bytes(8, "little"))
    with pytest.raises(PreceptorError, match="is no safetensors file, or a broken one"):
        read_state_dict(tmp_path / "w.safetensors")


@pytest.mark.parametrize("content", [[1, 2], {}, {"w": "text"}, {1: torch.ones(1)}])
def test_what_is_no_state_dict_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(PreceptorError, match=r"holds no state dict|which is no tensor"):
        read_state_dict(tmp_path / "w.pth")


def test_sizes_have_limits(zoo: Zoo, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(state(3), tmp_path / "w.pth")
    zoo.add(f"run:{run}", name="a")
    monkeypatch.setattr("preceptor.zoo.weights.MAX_FILE_BYTES", 1000)
    with pytest.raises(PreceptorError, match=r"weights file 'w.pth' has .* bytes, above the limit of 1,000"):
        read_state_dict(tmp_path / "w.pth")
    monkeypatch.setattr("preceptor.zoo.store.MAX_FILE_BYTES", 100)
    with pytest.raises(PreceptorError, match="above the limit of 100"):
        zoo.load("a")
    monkeypatch.setattr("preceptor.zoo.store.MAX_CARD_BYTES", 100)
    with pytest.raises(PreceptorError, match=r"a/card.json has .* above the limit of 100"):
        zoo.card("a")
    with pytest.raises(PreceptorError, match=f"a teacher has 1 to {limits.MAX_CLASSES:,}"):
        zoo.add(f"run:{run}", name="b", classes=[str(n) for n in range(limits.MAX_CLASSES + 1)])


def test_a_card_cannot_ask_timm_for_anything_else() -> None:
    with pytest.raises(PreceptorError, match="which a zoo never stores"):
        timm_source._build("test_resnet", {"num_classes": 3, "checkpoint_path": "/tmp/evil.pth"})


def test_programs_and_whole_models_are_told_from_weights(zoo: Zoo, tmp_path: Path) -> None:
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is out of fashion
        torch.jit.save(torch.jit.script(body), tmp_path / "script.pt")
        torch.export.save(torch.export.export(body, (torch.zeros(2, 4),)), tmp_path / "program.pt2")
    for file in ("script.pt", "program.pt2"):
        with pytest.raises(PreceptorError, match=rf"{file}' is a program .*export the model as ONNX"):
            read_state_dict(tmp_path / file)
    torch.save(body, tmp_path / "whole.pth")
    with pytest.raises(
        PreceptorError, match=r"never run: save model.state_dict\(\) as .safetensors or .pth$"
    ):
        read_state_dict(tmp_path / "whole.pth")
    (tmp_path / "short.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:300])
    with pytest.raises(PreceptorError, match=r"as .safetensors or .pth"):
        read_state_dict(tmp_path / "short.pth")
