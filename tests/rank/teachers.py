"""Tiny teachers for the ranking tests, made the way users make them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from preceptor.data import Task
from preceptor.models import build
from preceptor.zoo import Zoo

WIDTH = 12
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


def digits_task(classes: range = range(5), samples: int = 400) -> Task:
    """The first half of the digits; teachers learn from the other half."""
    x, y = digits()
    rows = np.flatnonzero(np.isin(y[:900], list(classes)))
    train, test = rows[:samples], rows[-100:]
    names = [NAMES[i] for i in classes]
    return Task.from_arrays(
        x[train], y[train] - classes.start, x[test], y[test] - classes.start, names, name="digits"
    )


def trained(classes: range, *, steps: int = 150, width: int = WIDTH, seed: int = 0) -> nn.Module:
    """An MLP that has learnt some of the digits; with no steps, one that has learnt nothing."""
    x, y = digits()
    rows = 900 + np.flatnonzero(np.isin(y[900:], list(classes)))
    inputs, labels = torch.from_numpy(x[rows]), torch.from_numpy(y[rows] - classes.start)
    model = build(f"mlp-{width}", len(classes), (64,), seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model.eval()


def run_folder(model: nn.Module, classes: range, folder: Path, width: int = WIDTH) -> Path:
    """The folder of a run, as a training leaves it."""
    folder.mkdir(parents=True)
    config = {"arch": f"mlp-{width}", "classes": [NAMES[i] for i in classes], "input_shape": [64]}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "model.safetensors",
    )
    return folder


def add(
    zoo: Zoo, name: str, classes: range, folder: Path, *, steps: int = 150, width: int = WIDTH, seed: int = 0
):
    model = trained(classes, steps=steps, width=width, seed=seed)
    return zoo.add(f"run:{run_folder(model, classes, folder / f'run-{name}', width)}", name=name)


def truncate_weights(zoo_folder: Path, name: str) -> None:
    path = zoo_folder / name / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:100])


class Odd(nn.Module):
    """A small network whose forward pass does what a flag file says: hangs, gives NaN, kills its process."""

    classes = ("a", "b", "c")

    def __init__(self, flag: str) -> None:
        super().__init__()
        from preceptor.zoo import Preprocessing

        self.preprocessing = Preprocessing.for_size([64], (), ())
        self.flag = flag
        self.body = nn.Linear(64, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import os
        import signal
        import time

        folder = Path(os.environ.get("ODD_TEACHERS", "/nonexistent"))
        features = torch.relu(self.body(x))
        if len(x) <= 16:  # the dry passes of adding and loading
            return self.head(features)
        if (folder / f"{self.flag}-hang").exists():
            time.sleep(3600)
        if (folder / f"{self.flag}-die-once").exists():
            (folder / f"{self.flag}-die-once").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if (folder / f"{self.flag}-die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if (folder / f"{self.flag}-nan").exists():
            features = features * float("nan")
        return self.head(features)


def hanging() -> nn.Module:
    return Odd("one")


def other() -> nn.Module:
    return Odd("two")
