"""Where networks run, and torch's generators there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
    return chosen


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """The caller's random numbers go on afterwards as if none had been drawn here, on the CPU and on this device."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
