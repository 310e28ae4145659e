"""Where a loader's samples live: on the device as uint8, or in files that worker threads decode ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from preceptor.data.augment import BOX_DRAWS, crop_resize, random_boxes
from preceptor.data.images import fit, resize_box
from preceptor.data.split import ArrayStore, Split

RESIDENT_BYTES = 2 * 2**30
CANVAS_RATIO = 2  # images for random crops are kept at up to this multiple of the size that networks see
MAX_ASPECT = 2  # longer images lose their ends, so that one panorama does not widen every canvas
AHEAD = 3  # batches that are decoded before they are asked for


def workers() -> int:
    """Threads for decoding."""
    return min(16, (os.cpu_count() or 1) + 1)


class Vectors:
    """Feature vectors on the device, with noise in training."""

    def __init__(self, split: Split, device: torch.device, noise: float) -> None:
        loaded = split.load(slice(None))
        assert isinstance(loaded, Tensor)
        self.data = loaded.to(device)
        self.scale = noise * self.data.std(dim=0, correction=0) if noise else None
        self.draws = self.data.shape[1] if noise else 0

    def batch(self, indices: Tensor, draws: Tensor | None) -> Tensor:
        """float32 (B, d)."""
        vectors = self.data[indices]
        if draws is None or self.scale is None:
            return vectors
        uniform = draws.clamp(1e-7, 1 - 1e-7).to(vectors.device, non_blocking=True)
        return vectors + self.scale * torch.special.ndtri(uniform)


class Squares:
    """Images of one size on the device, uint8 (N, C, H, W)."""

    draws = 0

    def __init__(self, split: Split, device: torch.device, size: int | None) -> None:
        if split.uniform and (size is None or split.sample_shape == (split.channels, size, size)):
            loaded = _whole(split)
        else:
            assert size is not None
            loaded = torch.from_numpy(_gather(split, lambda pixels: fit(pixels, size), size, size))
        self.data = loaded.to(device)

    def batch(self, indices: Tensor, draws: Tensor | None) -> Tensor:
        """uint8 (B, C, H, W)."""
        return self.data[indices]


class Canvases:
    """Images on the device in the corners of equal canvases, from which random boxes are cut."""

    draws = BOX_DRAWS

    def __init__(self, split: Split, device: torch.device, size: int) -> None:
        shapes = [canvas_size(shape, size) for shape in _shapes(split)]
        self.size = size
        self.heights = torch.tensor([height for height, _ in shapes], dtype=torch.float32, device=device)
        self.widths = torch.tensor([width for _, width in shapes], dtype=torch.float32, device=device)
        height, width = (max(sides) for sides in zip(*shapes, strict=True))
        self.data = torch.from_numpy(_gather(split, lambda pixels: shrink(pixels, size), height, width)).to(
            device
        )

    def batch(self, indices: Tensor, draws: Tensor | None) -> Tensor:
        """uint8 (B, C, size, size)."""
        assert draws is not None
        heights, widths = self.heights[indices], self.widths[indices]
        chance = draws[:, :BOX_DRAWS].to(self.data.device, non_blocking=True)
        boxes = random_boxes(chance, heights, widths)
        return crop_resize(self.data[indices], boxes, heights, widths, self.size)


def canvas_size(shape: tuple[int, ...], size: int) -> tuple[int, int]:
    """(height, width) that an image (C, H, W) takes on a canvas for crops of `size`."""
    height, width = shape[-2:]
    side = min(height, width)
    height, width = min(height, MAX_ASPECT * side), min(width, MAX_ASPECT * side)
    factor = min(1.0, CANVAS_RATIO * size / side)
    return max(1, round(height * factor)), max(1, round(width * factor))


def shrink(pixels: np.ndarray, size: int) -> np.ndarray:
    """Bring one image to its `canvas_size`."""
    _, height, width = pixels.shape
    side = min(height, width)
    cut_y, cut_x = max(0, height - MAX_ASPECT * side) / 2, max(0, width - MAX_ASPECT * side) / 2
    return resize_box(pixels, (cut_x, cut_y, width - cut_x, height - cut_y), *canvas_size(pixels.shape, size))


def canvas_bytes(split: Split, size: int) -> int:
    """What `Canvases` would take."""
    shapes = [canvas_size(shape, size) for shape in _shapes(split)]
    height, width = (max(sides) for sides in zip(*shapes, strict=True))
    return len(split) * (split.channels or 1) * height * width


def stream(
    split: Split, size: int | None, steps: Iterable[tuple[np.ndarray, Tensor | None]]
) -> Iterator[Tensor]:
    """Decode batches ahead in threads: uint8 (B, C, size, size) for each (positions, draws of boxes).

    Without a size the images, which then have one shape, stay as they are.

    What a sample becomes depends on its draws alone, so neither the number of threads nor their timing shows.
    """
    pending: deque[list[Future[np.ndarray]]] = deque()
    with ThreadPoolExecutor(max_workers=workers()) as pool:
        try:
            for positions, draws in steps:
                rows = [None] * len(positions) if draws is None else list(draws)
                pairs = zip(positions, rows, strict=True)
                pending.append(
                    [pool.submit(_one, split, int(position), size, row) for position, row in pairs]
                )
                if len(pending) > AHEAD:
                    yield _collect(pending.popleft())
            while pending:
                yield _collect(pending.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one(split: Split, position: int, size: int | None, draws: Tensor | None) -> np.ndarray:
    pixels = split.pixels(position)
    if size is None:
        return pixels
    if draws is None:
        return fit(pixels, size)
    extent = torch.tensor(pixels.shape[1:], dtype=torch.float32)
    left, top, width, height = (float(side) for side in random_boxes(draws[None], extent[:1], extent[1:]))
    right, bottom = min(left + width, pixels.shape[2]), min(top + height, pixels.shape[1])
    return resize_box(pixels, (left, top, right, bottom), size, size)


def _collect(futures: list[Future[np.ndarray]]) -> Tensor:
    return torch.from_numpy(np.stack([future.result() for future in futures]))


def _shapes(split: Split) -> list[tuple[int, ...]]:
    if split.sample_shape is not None:
        return [split.sample_shape] * len(split)
    return [split.shape(index) for index in range(len(split))]


def _whole(split: Split) -> Tensor:
    if isinstance(split.store, ArrayStore):
        loaded = split.load(slice(None))
        assert isinstance(loaded, Tensor)
        return loaded
    _, height, width = split.largest
    return torch.from_numpy(_gather(split, lambda pixels: pixels, height, width))


def _gather(split: Split, change: Callable[[np.ndarray], np.ndarray], height: int, width: int) -> np.ndarray:
    """All images, changed, in the corners of black canvases (N, C, height, width)."""
    canvases = np.zeros((len(split), split.channels or 1, height, width), dtype=np.uint8)

    def place(index: int) -> None:
        pixels = change(split.pixels(index))
        canvases[index, :, : pixels.shape[1], : pixels.shape[2]] = pixels

    with ThreadPoolExecutor(max_workers=workers()) as pool:
        list(pool.map(place, range(len(split)), chunksize=64))
    return canvases
