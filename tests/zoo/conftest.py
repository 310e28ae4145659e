"""Small teachers, zoos in every kind of place, and what the teachers are shown."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from preceptor.data import Task
from preceptor.models import build
from preceptor.zoo import Teacher, Zoo

CLASSES = ("ant", "bee", "cat")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def make_run(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A run folder as training leaves it."""
    folder.mkdir(parents=True)
    config = {
        "arch": "cnn-4",
        "classes": CLASSES,
        "input_shape": (3, 16, 16),
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
    }
    config |= changes
    model = build(config["arch"], len(config["classes"]), tuple(config["input_shape"]), seed=seed)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors")
    return folder


def make_task(count: int = 20, seed: int = 0, classes: tuple[str, ...] = CLASSES) -> Task:
    """Random images, each class as often as any other."""
    generator = np.random.default_rng(seed)
    shape = (count, 3, 20, 16)
    train, test = (generator.integers(0, 256, shape, dtype=np.uint8) for _ in range(2))
    labels = np.arange(count) % len(classes)
    return Task.from_arrays(train, labels, test, labels, classes=classes, name="made")


def smooth_image(height: int, width: int) -> np.ndarray:
    """One whose pixels change little when it is resized a little differently."""
    y, x = np.mgrid[0:height, 0:width] / 10
    return np.stack([128 + 100 * np.sin(x + c) * np.cos(y - c) for c in range(3)], -1).astype(np.uint8)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    return Zoo(tmp_path / "zoo")


@pytest.fixture
def teacher(zoo: Zoo, run: Path) -> Teacher:
    zoo.add(f"run:{run}", name="a")
    return zoo.load("a")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A real S3 server on the loopback interface."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["local", "memory", "s3"])
def any_zoo(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zoo:
    """The same zoo in a folder, in memory and on S3."""
    if request.param == "local":
        return Zoo(tmp_path / "zoo")
    if request.param == "memory":
        return Zoo(f"memory://{secrets.token_hex(8)}/zoo")
    import boto3

    endpoint = request.getfixturevalue("s3_server")
    for variable, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    bucket = "zoo-" + secrets.token_hex(6)
    boto3.client("s3").create_bucket(Bucket=bucket)
    return Zoo(f"s3://{bucket}/some/zoo")


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(3))
