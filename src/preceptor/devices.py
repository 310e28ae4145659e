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


# On a network's root: it takes inputs only as they come.
_AS_THEY_COME = "preceptor_inputs_as_they_come"


def lay_out(network: nn.Module, device: torch.device, shape: Sequence[int]) -> None:
    """Let a network's weights, and by `laid_out` its inputs of a shape (C, H, W), lie as is fastest on their device.

    That is with the channels last. A network that cannot work so, since it looks at a map's memory as a vector
    (``x.view(len(x), -1)``), is left as it is.
    """
    if len(shape) != 3 or device.type not in ("cpu", "cuda"):
        return
    inputs = torch.zeros(2, *shape, device=device)
    able = _can_take(network, inputs.contiguous(memory_format=torch.channels_last))
    setattr(network, _AS_THEY_COME, not able and _can_take(network, inputs))
    if not getattr(network, _AS_THEY_COME):
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.ndim == 4:
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def laid_out(inputs: Tensor, network: nn.Module) -> Tensor:
    """A batch of inputs as it lies best for a network, and for its device."""
    as_they_come = getattr(network, _AS_THEY_COME, False) or inputs.device.type not in ("cpu", "cuda")
    if inputs.ndim != 4 or as_they_come:
        return inputs
    return inputs.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def _can_take(network: nn.Module, inputs: Tensor) -> bool:
    """Whether a pass over these inputs comes to its end; one that does not is told by the pass over the data."""
    ask, modes = getattr(network, "outputs", network), [(part, part.training) for part in network.modules()]
    try:
        with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
            network.eval()
            ask(inputs)
    except Exception:
        return False
    finally:
        for part, training in modes:
            part.training = training
    return True


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
