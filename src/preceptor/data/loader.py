"""Batches for training and evaluation, the same whatever the device, the workers or the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.data.augment import BOX_DRAWS, Augmentation, augmentation
from preceptor.data.plan import Share, epoch_order, plan_epoch, seeded
from preceptor.data.residence import RESIDENT_BYTES, Canvases, Squares, Vectors, canvas_bytes, stream
from preceptor.data.split import Split


@dataclass(frozen=True)
class Batch:
    """One step's samples on the device."""

    images: Tensor  # float32 (B, C, H, W) in [0, 1], or vectors (B, d)
    labels: Tensor  # (B,) int64
    indices: Tensor  # (B,) int64, positions in the split
    weights: Tensor  # (B,) float32: 1, or 0 for a row that only fills the batch


class Loader:
    """Serves a split in batches.

    Small data sets live on the device as uint8 and are augmented there; larger ones are decoded ahead by
    threads. What a batch holds depends only on (seed, epoch, step), so an epoch can be resumed at any step.

    Attributes:
        input_shape: Of one sample as a network sees it: (C, H, W) or (d,).
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        train: bool,
        seed: int = 0,
        augment: Augmentation | str | None = None,
        device: str | torch.device = "cpu",
        image_size: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        """Prepare to serve.

        Args:
            split: The samples.
            batch_size: Of a global batch, over all ranks.
            train: Shuffle, augment, and fill the last batch up with rows of weight 0.
            seed: Of order and augmentation.
            augment: A name such as "pad-crop-flip+randaugment"; only used in training.
            device: Where batches appear.
            image_size: Side to which images are brought (shorter side, then the middle square). Needed where
                their sizes differ.
            rank: Which part of each global batch to serve.
            world_size: Number of parts.
            resident_bytes: Above this the samples stay off the device and are streamed.
        """
        self.augmentation = augmentation(augment if train else None)
        _check(split, batch_size, self.augmentation, image_size, rank, world_size)
        self.split, self.batch_size, self.train, self.seed = split, batch_size, train, seed
        self.rank, self.world_size, self.device = rank, world_size, torch.device(device)
        shape = split.sample_shape
        self.size = image_size
        if image_size is None and shape is not None and self.augmentation.resized_crop:
            self.size = min(shape[1:])
        self._labels = torch.from_numpy(split.labels).to(self.device)
        self._home = self._settle(resident_bytes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample as a network sees it: (C, H, W) or (d,)."""
        if self.split.kind == "vectors" or self.size is None:
            return self.split.sample_shape or ()
        return (self.split.channels or 1, self.size, self.size)

    def __len__(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.split) // min(self.batch_size, len(self.split)))

    def epoch(self, epoch: int = 0, start_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from `start_step` on."""
        order = epoch_order(len(self.split), self.train, self.seed, epoch)
        shares = plan_epoch(order, self.batch_size, self.train, self.rank, self.world_size)[start_step:]
        if not shares:
            return
        # One transfer for the whole epoch: a step then only slices.
        lengths = [len(share.slots) for share in shares]
        indices = torch.from_numpy(np.concatenate([share.positions for share in shares])).to(self.device)
        weights = torch.from_numpy(np.concatenate([share.weights for share in shares])).to(self.device)
        streamed = self._stream(shares, epoch, start_step)
        parts = zip(shares, indices.split(lengths), weights.split(lengths), strict=True)
        for step, (share, index, weight) in enumerate(parts, start=start_step):
            draws = self._draw(epoch, step, share)
            raw = next(streamed) if self._home is None else self._home.batch(index, draws)
            yield Batch(self._finish(raw, draws), self._labels[index], index, weight)

    def _settle(self, limit: int) -> Vectors | Squares | Canvases | None:
        """Put the samples on the device, or None to stream them."""
        split, shape = self.split, self.split.image_shape
        if split.kind == "vectors":
            return Vectors(split, self.device, self.augmentation.noise)
        if self.augmentation.resized_crop:
            assert self.size is not None
            return (
                Canvases(split, self.device, self.size) if canvas_bytes(split, self.size) <= limit else None
            )
        pixels = self.size**2 if self.size is not None else shape[1] * shape[2] if shape else 0
        if len(split) * pixels * (split.channels or 1) <= limit:
            return Squares(split, self.device, self.size)
        return None

    def _draw(self, epoch: int, step: int, share: Share) -> Tensor | None:
        """This rank's random numbers, dealt out of those for the global batch."""
        count = self._home.draws if isinstance(self._home, Vectors) else self.augmentation.draws
        if not count:
            return None
        rows = min(self.batch_size, len(self.split))
        draws = torch.rand(rows, count, generator=seeded(self.seed, epoch, step))[share.slots]
        return draws.pin_memory() if self.device.type == "cuda" else draws

    def _stream(self, shares: list[Share], epoch: int, start_step: int) -> Iterator[Tensor]:
        """Batches from files, decoded ahead; never begun where the samples live on the device."""

        def steps() -> Iterator[tuple[np.ndarray, Tensor | None]]:
            for step, share in enumerate(shares, start=start_step):
                draws = self._draw(epoch, step, share) if self.augmentation.resized_crop else None
                yield share.positions, None if draws is None else draws[:, :BOX_DRAWS]

        for batch in stream(self.split, self.size, steps()):
            pinned = batch.pin_memory() if self.device.type == "cuda" else batch
            yield pinned.to(self.device, non_blocking=True)

    def _finish(self, raw: Tensor, draws: Tensor | None) -> Tensor:
        """Augment, and bring uint8 to [0, 1]."""
        if self.split.kind == "vectors":
            return raw
        images = raw if draws is None else self.augmentation.apply(raw, draws)
        return images.to(torch.float32).div_(255)


def _check(
    split: Split, batch_size: int, augment: Augmentation, image_size: int | None, rank: int, world_size: int
) -> None:
    if batch_size < 1 or not 0 <= rank < world_size:
        raise PreceptorError(
            f"got batch size {batch_size} and rank {rank} of {world_size}; use a size of 1 or more and "
            "a lower rank"
        )
    if not len(split):
        raise PreceptorError("the split is empty; give one with samples")
    if split.kind == "vectors":
        if augment.draws or image_size is not None:
            raise PreceptorError(
                f"{augment.name!r} and an image size are for images; vectors take 'none' or 'noise'"
            )
        return
    if augment.noise:
        raise PreceptorError(
            "the augmentation 'noise' is for vectors; for images use 'pad-crop-flip' or 'none'"
        )
    if image_size is not None and image_size < 1:
        raise PreceptorError(f"image size {image_size} is too small; use 1 or more")
    if image_size is None and not split.uniform:
        raise PreceptorError("the images differ in size; give an image_size to bring them to, such as 96")
