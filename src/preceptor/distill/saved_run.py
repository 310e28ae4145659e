"""Use a finished run: its network with its normalisation, and predictions for image files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.data.images import decode, fit, read_bytes
from preceptor.data.loader import Loader
from preceptor.data.split import ListStore, Split
from preceptor.data.task import Task
from preceptor.defaults import own_defaults
from preceptor.distill.devices import resolve_device
from preceptor.distill.evaluate import Evaluation
from preceptor.distill.inputs import InputSpec, Normalise
from preceptor.distill.run_folder import RunFolder
from preceptor.files import local_path
from preceptor.models import build


@dataclass(frozen=True)
class SavedRun:
    """A trained network out of its run folder."""

    network: nn.Module  # takes normalised inputs
    normalise: Normalise
    spec: InputSpec
    classes: tuple[str, ...]
    config: dict[str, Any]


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image, most probable class first."""

    path: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@own_defaults()
def load_run(path: str | os.PathLike[str]) -> SavedRun:
    """Build a run's network again and load its weights."""
    folder = RunFolder(path)
    config = folder.read_config()
    arch = str(config["arch"])
    if arch.startswith("python:"):
        raise PreceptorError(
            f"the network of {path} is your own class {arch[7:]} and cannot be built from its name; "
            "make it yourself and load model.safetensors into it"
        )
    spec = InputSpec(tuple(config["input_shape"]), tuple(config["mean"]), tuple(config["std"]))
    network = build(arch, len(config["classes"]), spec.network_shape, seed=0)
    network.load_state_dict(folder.read_model())
    return SavedRun(network.eval(), Normalise(spec), spec, tuple(config["classes"]), config)


@own_defaults()
@torch.no_grad()
def predict(
    run: str | os.PathLike[str] | SavedRun,
    images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch_size: int = 64,
) -> list[Prediction]:
    """Class probabilities for image files.

    Args:
        run: A run folder, or what `load_run` gave.
        images: One or more image files; they are brought to the size the network was trained with.
        batch_size: Images that go through the network together.
    """
    saved = run if isinstance(run, SavedRun) else load_run(run)
    images = [images] if isinstance(images, str | os.PathLike) else images
    if len(saved.spec.shape) != 3:
        raise PreceptorError(
            f"this run takes vectors of {saved.spec.shape[0]} numbers, and image files came; name a run on images, or "
            "ask this one in Python: load_run(…).network"
        )
    channels, *_, side = saved.spec.shape
    predictions: list[Prediction] = []
    for start in range(0, len(images), batch_size):
        # One image at a time has its full size in memory.
        chunk = [
            fit(decode(read_bytes(local_path(path)), str(path), channels), side)
            for path in images[start : start + batch_size]
        ]
        split = Split(ListStore(chunk), np.zeros(len(chunk), dtype=np.int64))
        loader = Loader(split, batch_size, train=False, image_size=side)
        for batch in loader.epoch(0):
            shares = saved.network(saved.normalise(batch.images)).softmax(dim=1)
            for index, row in zip(batch.indices.tolist(), shares, strict=True):
                predictions.append(_ranked(str(images[start + index]), row, saved.classes))
    return predictions


def _ranked(path: str, shares: torch.Tensor, classes: tuple[str, ...]) -> Prediction:
    values, places = shares.sort(descending=True)
    return Prediction(path, tuple(classes[place] for place in places.tolist()), tuple(values.tolist()))


@own_defaults()
@torch.no_grad()
def split_probabilities(
    run: str | os.PathLike[str] | SavedRun, split: Split, *, device: str = "cpu", batch_size: int = 256
) -> np.ndarray:
    """Class probabilities for a split of a task, in its order: (N, C)."""
    saved = run if isinstance(run, SavedRun) else load_run(run)
    network, normalise = saved.network.to(device), saved.normalise.to(device)
    size = saved.spec.shape[-1] if len(saved.spec.shape) == 3 else None
    loader = Loader(split, batch_size, seed=0, train=False, augment="none", device=device, image_size=size)
    shares = np.empty((len(split), len(saved.classes)), dtype=np.float32)
    for batch in loader.epoch(0):
        counted = batch.weights > 0
        rows = network(normalise(batch.images)).softmax(dim=1)[counted]
        shares[batch.indices[counted].cpu().numpy()] = rows.float().cpu().numpy()
    return shares


def score_run(run: str | os.PathLike[str] | SavedRun, task: Task, device: str = "auto") -> Evaluation:
    """How good a finished run is on the test split of a task with the same classes."""
    saved = run if isinstance(run, SavedRun) else load_run(run)
    if saved.classes != task.classes:
        raise PreceptorError(
            f"the run knows the classes {saved.classes} and the task has {task.classes}; give its own task"
        )
    shares = split_probabilities(saved, task.test, device=str(resolve_device(device)))
    labels, count = task.test.labels, len(task.classes)
    cells = np.bincount(labels * count + shares.argmax(1), minlength=count * count).reshape(count, count)
    loss = -np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-30)).mean()
    return Evaluation(tuple(map(tuple, cells.tolist())), float(loss))
