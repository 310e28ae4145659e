"""What tells one sample from another, in whatever file or array it comes."""

from __future__ import annotations

import hashlib

import numpy as np


def identity(values: np.ndarray) -> str:
    """A hash of a sample's shape and values: uint8 (C, H, W) as decoded, or float32 (d,).

    A colour image with three equal channels is the grey image that it shows: files of grey pictures are often saved in
    colour, and decoded in colour beside coloured ones.
    """
    if values.ndim == 3 and len(values) == 3 and _is_grey(values):
        values = values[:1]
    digest = hashlib.sha256(repr((values.dtype.str, values.shape)).encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:32]


def _is_grey(pixels: np.ndarray) -> bool:
    red, green, blue = pixels
    if not red[0, 0] == green[0, 0] == blue[0, 0]:  # most pictures are told by their corner
        return False
    return np.array_equal(red, green) and np.array_equal(red, blue)
