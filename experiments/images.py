"""Labelled images on the device as bytes, and the random views of them that training sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from preceptor.data.augment import BOX_DRAWS, Shift, crop_resize, random_boxes


@dataclass(frozen=True)
class Canvases:
    """Images of several sizes in the top left corners of equal canvases, for random resized crops."""

    pixels: Tensor  # (N, C, H, W) uint8
    heights: Tensor  # (N,) float
    widths: Tensor  # (N,) float

    def subset(self, rows: Tensor) -> Canvases:
        """The given rows."""
        return Canvases(self.pixels[rows], self.heights[rows], self.widths[rows])


@dataclass(frozen=True)
class Images:
    """A split of a task.

    With canvases, training sees random resized crops of them, mirrored every second time; without, the images
    themselves, shifted by up to an eighth of their side and mirrored. Nothing here waits for the device.
    """

    pixels: Tensor  # (N, C, S, S) uint8, what evaluation and the clean pass of a teacher see
    labels: Tensor  # (N,) int64
    canvases: Canvases | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, S, S)."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    @property
    def draws(self) -> int:
        """Uniform random numbers that one view of one image takes."""
        return Shift().draws + (0 if self.canvases is None else BOX_DRAWS)

    def view(self, rows: Tensor, draws: Tensor) -> Tensor:
        """Random views: (B,) rows and (B, draws) numbers to uint8 (B, C, S, S)."""
        if self.canvases is None:
            return Shift()(self.pixels[rows], draws)
        chosen = self.canvases.subset(rows)
        boxes = random_boxes(draws[:, :BOX_DRAWS], chosen.heights, chosen.widths)
        size = self.pixels.shape[-1]
        cut = crop_resize(chosen.pixels, boxes, chosen.heights, chosen.widths, size)
        return Shift(crop=False)(cut, draws[:, BOX_DRAWS:])

    def subset(self, rows: Tensor) -> Images:
        """The given rows."""
        canvases = None if self.canvases is None else self.canvases.subset(rows)
        return Images(self.pixels[rows], self.labels[rows], canvases)

    def of_classes(self, chosen: tuple[int, ...]) -> Images:
        """The images of these classes, which become 0, 1, … in the given order."""
        count = max(int(self.labels.max()), *chosen) + 1
        places = torch.full((count,), -1, device=self.labels.device)
        places[torch.tensor(chosen, device=places.device)] = torch.arange(len(chosen), device=places.device)
        rows = torch.nonzero(places[self.labels] >= 0).flatten()
        part = self.subset(rows)
        return Images(part.pixels, places[part.labels], part.canvases)

    def first_of_each(self, count: int, seed: int) -> Tensor:
        """Rows of the first `count` images of each class in a seeded order."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).to(
            self.labels.device
        )
        rows = [order[self.labels[order] == c][:count] for c in range(int(self.labels.max()) + 1)]
        return torch.cat(rows)

    def per_class(self, count: int, seed: int) -> Images:
        """`count` images of each class, drawn by the seed."""
        return self.subset(self.first_of_each(count, seed))

    def held_out(self, fraction: float, seed: int) -> tuple[Images, Images]:
        """A share of each class set apart for validation: (rest, validation)."""
        counts = torch.bincount(self.labels)
        held = self.first_of_each(max(1, int(counts.min() * fraction)), seed)
        kept = torch.ones(len(self), dtype=torch.bool, device=self.labels.device)
        kept[held] = False
        return self.subset(torch.nonzero(kept).flatten()), self.subset(held)
