"""A weights file that is not what it seems does no harm and is told for what it is."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo, limits
from preceptor.zoo.weights import read_state_dict
from tests.zoo.attack import Attack
from tests.zoo.conftest import CLASSES
from tests.zoo.state_dicts import resnet_state


@pytest.mark.parametrize("form", ["torch", "torch-nested", "torch-legacy", "pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".safetensors"])
def test_code_in_a_weights_file_is_never_run(zoo: Zoo, tmp_path: Path, form: str, suffix: str) -> None:
    path, ran = tmp_path / f"w{suffix}", tmp_path / "ran"
    attack = Attack(ran)
    if form == "pickle":
        path.write_bytes(pickle.dumps(attack))
    elif form == "torch-nested":
        torch.save({"state_dict": {**resnet_state(3), "more": attack}}, path)
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


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_prefixes_of_wrappers_are_taken_off(tmp_path: Path, prefix: str, suffix: str) -> None:
    state, path = {f"{prefix}w": torch.ones(2), f"{prefix}b": torch.zeros(1)}, tmp_path / f"w.{suffix}"
    safetensors.torch.save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    assert set(read_state_dict(path)) == {"w", "b"}


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


def test_sizes_have_limits(zoo: Zoo, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(resnet_state(3), tmp_path / "w.pth")
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
    with pytest.raises(PreceptorError, match=f"a teacher has 2 to {limits.MAX_CLASSES:,}"):
        zoo.add(f"run:{run}", name="b", classes=[str(n) for n in range(limits.MAX_CLASSES + 1)])
