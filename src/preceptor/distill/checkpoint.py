"""Checkpoints: one safetensors file each, tensors plus plain JSON, so that reading one never runs code.

A file bears its final name only when it is whole, and the one before it goes only after that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.files import remove_leftovers, write_atomically

_VALUES = "preceptor"  # the key of the JSON in the file's metadata


@dataclass(frozen=True)
class Checkpoint:
    """Everything a training needs to go on after `step` optimiser steps."""

    step: int
    tensors: Mapping[str, Tensor]  # names like student/conv.weight, optimizer/3/momentum_buffer
    values: Mapping[str, Any] = field(default_factory=dict)  # whatever JSON can hold

    def section(self, name: str) -> dict[str, Tensor]:
        """The tensors under `name`/, without that prefix."""
        prefix = f"{name}/"
        return {key[len(prefix) :]: value for key, value in self.tensors.items() if key.startswith(prefix)}


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` into `folder`, then drop the older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    # Clones: safetensors refuses tensors that share memory, as tied weights do.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in checkpoint.tensors.items()}
    values = {"step": checkpoint.step, **checkpoint.values}
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    write_atomically(path, save(tensors, metadata={_VALUES: json.dumps(values)}))
    for older in checkpoint_files(folder):
        if older.name < path.name:
            older.unlink(missing_ok=True)
    return path


def checkpoint_files(folder: Path) -> list[Path]:
    """The whole checkpoints in `folder`, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest readable checkpoint, or None where none was written."""
    files = checkpoint_files(folder)
    problems = []
    for path in reversed(files):
        try:
            return _read(path)
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            problems.append(f"{path.name}: {error}")
    if problems:
        raise PreceptorError(
            f"no checkpoint in {folder} can be read ({'; '.join(problems)}); start again in another folder"
        )
    return None


def _read(path: Path) -> Checkpoint:
    with safe_open(path, framework="pt", device="cpu") as file:
        values = json.loads(file.metadata()[_VALUES])
        # Clones: the file may be deleted while the tensors are in use, and mapped memory would go with it.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    return Checkpoint(step=int(values.pop("step")), tensors=tensors, values=values)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter number and name; its settings are the recipe's."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}/{name}": value
        for number, entries in state.items()
        for name, value in entries.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split("/", 1)
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
