"""Torch's process-wide defaults, held off while the library works.

Notebooks say ``torch.set_default_device("cuda")`` or ``torch.set_default_dtype(torch.float64)`` in their first cell.
Tensors of ours name no device where the CPU is meant and no type where float32 is; they mean it under any default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def own_defaults() -> Iterator[None]:
    """New tensors are on the CPU and in float32 unless they say otherwise; also for decorating a function."""
    was = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    # Entered only where it changes something: it costs every call of torch a detour.
    elsewhere = torch.get_default_device().type != "cpu"
    try:
        with torch.device("cpu") if elsewhere else nullcontext():
            yield
    finally:
        torch.set_default_dtype(was)
