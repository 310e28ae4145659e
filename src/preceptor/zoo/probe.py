"""The forward pass that is recorded when a teacher is added and repeated when it is verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.core import ModelOutput


def probe_inputs(input_size: Sequence[int], rows: int = 4, seed: int = 0) -> Tensor:
    """Seeded normalised inputs, the same on every platform; rows of different contrast."""
    generator = np.random.Generator(np.random.PCG64(seed))
    noise = generator.random((rows, *input_size), dtype=np.float32) * 2 - 1
    contrast = np.linspace(0.5, 2.0, rows, dtype=np.float32).reshape(rows, *([1] * len(input_size)))
    return torch.from_numpy(noise * contrast)


def probe_outputs(network: Any, input_size: Sequence[int]) -> dict[str, Tensor]:
    """What is recorded of a `TorchNetwork` or an `OnnxNetwork`: its features and logits of `probe_inputs`."""
    output = network(probe_inputs(input_size), maps=False)
    return {"features": output.features, "logits": output.logits}


def compare(recorded: dict[str, Tensor], output: ModelOutput, tolerance: float) -> list[str]:
    """What differs between recorded and repeated outputs, in words; empty when nothing does."""
    problems = []
    for name, again in (("features", output.features), ("logits", output.logits)):
        before = recorded.get(name)
        if before is None or before.shape != again.shape:
            came = None if before is None else tuple(before.shape)
            problems.append(f"recorded {name} have shape {came}, the network gives {tuple(again.shape)}")
            continue
        difference = (before - again.cpu()).abs().max().item()
        scale = before.abs().max().item()
        if not difference <= tolerance * scale + 1e-6:
            problems.append(
                f"its {name} are not those recorded when it was added: they differ by {difference:.3g} "
                f"where the largest is {scale:.3g}"
            )
    return problems
