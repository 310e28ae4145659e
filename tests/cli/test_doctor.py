"""The check-up: what it finds, what it calls broken, and how it ends."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from typer.testing import CliRunner, Result

from preceptor.cli import app
from preceptor.zoo import Zoo
from tests.zoo.conftest import make_run

MODULE = importlib.import_module("preceptor.cli.doctor")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "3GB")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def findings(*arguments: object, code: int = 0) -> dict[str, Any]:
    result = call("--json", *arguments)
    assert result.exit_code == code, result.output + repr(result.exception)
    return json.loads(result.output)


def test_versions_devices_and_cache(tmp_path: Path) -> None:
    found = findings()
    assert found["problems"] == []
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    assert set(found["versions"]) == {"python", "preceptor", "torch", "torchvision", "timm"}
    assert found["devices"]["cpu"]["memory"] == psutil.virtual_memory().total
    assert len(found["devices"]["cuda"]) == torch.cuda.device_count()
    assert found["cache"]["location"] == str(tmp_path / "cache")
    assert (found["cache"]["limit"], found["cache"]["features"]) == (3 * 2**30, 0)
    shown = call()
    assert shown.exit_code == 0
    assert shown.output.endswith("nothing is broken\n")
    assert f"torch {torch.__version__.partition('+')[0]}" in shown.output
    assert "of at most 3.0 GiB in 0 entries" in shown.output


def test_an_absent_extra_comes_with_the_command_and_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(MODULE, "find_spec", lambda name: None if name == "onnxruntime" else real(name))
    found = findings()
    assert found["extras"]["onnx"]["absent"] == ["onnxruntime"]
    assert found["extras"]["onnx"]["get"] == "pip install 'preceptor[onnx]'"
    assert "extra onnx: not installed; pip install 'preceptor[onnx]'" in call().output


def test_a_package_that_cannot_be_imported_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist\nmore lines")
        return importlib.import_module(name)

    monkeypatch.setattr(MODULE, "import_module", refuse)
    found = findings(code=1)
    assert found["versions"]["torchvision"] == "broken"
    assert found["problems"] == [
        "torchvision cannot be used (operator torchvision::nms does not exist); "
        "pip install --force-reinstall torchvision"
    ]


def test_gpus_are_named_and_a_broken_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="Card", total_memory=8 * 2**30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: None)
    assert "cuda:0: Card, 8.0 GiB" in call().output

    def too_old(*sizes: int, device: str) -> None:
        raise RuntimeError("the driver is too old")

    monkeypatch.setattr(torch, "zeros", too_old)
    assert findings(code=1)["problems"] == [
        "a CUDA device is there and does not work (the driver is too old); use --device cpu"
    ]


def test_a_cache_that_cannot_be_used_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "file"))
    problem = findings(code=1)["problems"][0]
    assert "cannot be written" in problem
    assert "set PRECEPTOR_CACHE" in problem
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "plenty")
    assert findings(code=1)["problems"] == ["'plenty' is no size for the cache; write it as 800M or 5GB"]


def test_a_nearly_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 2**20))
    assert "has 5.0 MiB left" in findings(code=1)["problems"][0]


def test_a_damaged_teacher_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    zoo = Zoo(tmp_path / "zoo")
    for name in ("good", "bad"):
        zoo.add(f"run:{tmp_path / 'run'}", name=name)
    assert findings("--zoo", zoo.url)["zoo"] == {"bad": [], "good": []}
    weights = tmp_path / "zoo" / "bad" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    shown = call("--zoo", zoo.url)
    assert shown.exit_code == 1
    assert "teacher good: good" in shown.output
    assert "BROKEN: teacher bad: bad/weights.safetensors is not the file that was added" in shown.output


def test_a_mistyped_zoo_is_a_problem(tmp_path: Path) -> None:
    assert "there is no zoo at" in findings("--zoo", tmp_path / "nowhere", code=1)["problems"][0]


def test_code_is_run_when_trusted_and_not_called_broken_otherwise(tmp_path: Path) -> None:
    zoo = Zoo(tmp_path / "zoo")
    zoo.add("python:tests.rank.teachers:hanging", name="own", trust_code=True)
    shown = call("--zoo", zoo.url)
    assert shown.exit_code == 0
    assert "teacher own: not run (needs --trust-code), its files are good\n" in shown.output
    assert findings("--zoo", zoo.url)["not_run"] == ["own"]
    assert "teacher own: good\n" in call("--zoo", zoo.url, "--trust-code").output
    (tmp_path / "zoo" / "own" / "weights.safetensors").write_bytes(b"")
    assert "own/weights.safetensors is not the file" in findings("--zoo", zoo.url, code=1)["problems"][0]
