"""What a notebook may set for torch before it calls the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

UNUSUAL = ("meta", "float64")


@contextmanager
def unusual(*names: str) -> Iterator[None]:
    """New tensors have no storage ("meta") or double precision ("float64") unless they say otherwise."""
    if "meta" in names:
        torch.set_default_device("meta")
    if "float64" in names:
        torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
