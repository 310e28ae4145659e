"""Where networks run."""

from __future__ import annotations

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
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise PreceptorError(
            f"device {device!r} came and the last one of this machine is cuda:{last}; use auto or that"
        )
    return chosen
