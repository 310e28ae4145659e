"""Where networks run, and how images lie in memory and go through them there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError


def resolve_device(device: str | torch.device) -> torch.device:
    """The device that "auto", "cpu", "cuda", "cuda:1" or "mps" means here."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise PreceptorError(
            f"device {device!r} is unknown; expected auto, cpu, cuda, cuda:N or mps"
        ) from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise PreceptorError(f"device {device!r} came and this machine has no CUDA device; use auto or cpu")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise PreceptorError(
            f"device {device!r} came and the last one of this machine is cuda:{last}; use auto or that"
        )
    return chosen


def channels_last(device: torch.device, shape: Sequence[int]) -> bool:
    """Whether inputs of a shape (C, H, W) lie with the channels in the last place, in which convolutions are faster."""
    return len(shape) == 3 and device.type in ("cpu", "cuda")


def lay_out(network: nn.Module, device: torch.device, shape: Sequence[int]) -> None:
    """Let a network's weights lie as inputs of a shape (C, H, W) do on their device."""
    if channels_last(device, shape):
        network.to(memory_format=torch.channels_last)


def laid_out(inputs: Tensor) -> Tensor:
    """A batch of inputs as it lies best for its device."""
    if channels_last(inputs.device, inputs.shape[1:]):
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def batch_rows(shape: Sequence[int], device: torch.device) -> int:
    """Rows of a batch of about 2^24 input numbers on a GPU (111 images of 224 px), 2^20 on a CPU (6); at most 1024.

    On a CPU what one layer hands to the next should stay in the cache (docs/performance.md).
    """
    budget = 2**24 if device.type == "cuda" else 2**20
    return min(1024, max(1, budget // math.prod(shape)))


def in_parts(inputs: Tensor) -> Sequence[Tensor]:
    """A batch as a network without gradients is through with it soonest: on a CPU a few images at a time."""
    if inputs.device.type != "cpu" or not len(inputs):
        return (inputs,)
    return inputs.split(batch_rows(inputs.shape[1:], inputs.device))
