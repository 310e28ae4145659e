"""Will it fit: what assessing a teacher needs, against what there is."""

from __future__ import annotations

import math
import re

import torch

from preceptor.core import PreceptorError
from preceptor.devices import batch_rows
from preceptor.zoo import Card

# Of one image, live at a time in a forward pass without gradients, in multiples of the input: a ResNet-50 at
# 224 px holds two or three maps of 64 x 112 x 112 where the network is widest, about 16 times its input.
ACTIVATIONS = 24
# Copies of the (N, d) features that metrics hold at a time, in float64.
COPIES = 3
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def needed_bytes(card: Card, samples: int, device: torch.device) -> int:
    """An estimate of the memory one assessment takes: weights, activations, outputs and metrics."""
    # The file's bytes and the network made of them exist side by side for a moment.
    weights = 2 * card.files[card.weights_file].size
    numbers = math.prod(card.preprocessing.input_size)
    batch = min(samples, batch_rows(card.preprocessing.input_size, device))
    activations = batch * numbers * 4 * ACTIVATIONS
    outputs = samples * (card.feature_size + len(card.classes)) * 4
    metrics = samples * card.feature_size * 8 * COPIES
    return weights + activations + outputs + metrics


def available_bytes(device: torch.device) -> int:
    """Free memory on the machine, or on the GPU where the network runs there and that is less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    if device.type == "cuda":
        free = min(free, int(torch.cuda.mem_get_info(device)[0]))
    return free


def too_big(card: Card, samples: int, *, device: str, limit: int | None) -> str | None:
    """Why the teacher cannot be assessed here for want of memory; None where it can."""
    where = torch.device(device)
    needed = needed_bytes(card, samples, where)
    available = available_bytes(where)
    if limit is not None and needed > limit:
        return f"needs about {size(needed)} of memory, above the limit of {size(limit)}; raise --memory-limit"
    if needed > available:
        free = size(available)
        return f"needs about {size(needed)} of memory and {free} are free; use a bigger machine or --sample"
    return None


def parse_size(text: str | int | None) -> int | None:
    """Bytes from a number or a text such as ``800M`` or ``4GB``."""
    if text is None or isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if match is None:
        raise PreceptorError(f"memory limit {text!r} is no size; write it as 800M or 4GB")
    return int(float(match[1]) * UNITS[match[2]])


def size(count: int) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count = count / 1024  # type: ignore[assignment]
    return f"{count:.1f} TB"
