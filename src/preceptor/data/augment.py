"""Augmentation of whole batches on their device, driven by numbers drawn beforehand.

A stage is a function of images and of uniform draws, so the same draws give the same images on any device and
with any number of workers. Images are uint8 (B, C, H, W) throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import functional as TF

from preceptor.core import PreceptorError
from preceptor.wording import hint


class Stage(Protocol):
    """One kind of change; it uses up `draws` uniform numbers for each image."""

    @property
    def draws(self) -> int:
        """How many numbers from [0, 1) each image needs."""

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Change uint8 images (B, C, H, W) by draws (B, draws), which lie on the CPU."""


@dataclass(frozen=True)
class Shift:
    """Pad with black by an eighth of the side, cut out at random, mirror every second image: one gather."""

    crop: bool = True
    flip: bool = True
    draws: int = 3

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """uint8 (B, C, H, W) -> the same shape."""
        batch, channels, height, width = images.shape
        pad = round(min(height, width) / 8) if self.crop else 0
        chance = draws.to(images.device, non_blocking=True)
        top, left = ((chance[:, :2] * (2 * pad + 1)).long()).unbind(1)
        rows = top[:, None] + torch.arange(height, device=images.device)  # (B, H)
        columns = left[:, None] + torch.arange(width, device=images.device)  # (B, W)
        if self.flip:
            columns = torch.where(chance[:, 2:] < 0.5, columns.flip(1), columns)
        picked = rows[:, :, None] * (width + 2 * pad) + columns[:, None, :]  # (B, H, W)
        source = F.pad(images, (pad, pad, pad, pad)) if pad else images
        flat = source.reshape(batch, channels, -1)
        return flat.gather(2, picked.view(batch, 1, -1).expand(-1, channels, -1)).view_as(images)


class Boxes(NamedTuple):
    """Crops in pixels, each (B,)."""

    left: Tensor
    top: Tensor
    width: Tensor
    height: Tensor


def random_boxes(
    draws: Tensor,
    heights: Tensor,
    widths: Tensor,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Boxes:
    """Boxes of a random share of the area and a random aspect ratio (Szegedy et al., 2015).

    A box that does not fit is cut to the image, where torchvision draws again up to ten times.
    """
    area = heights * widths * (scale[0] + draws[:, 0] * (scale[1] - scale[0]))
    aspect = torch.exp(math.log(ratio[0]) + draws[:, 1] * math.log(ratio[1] / ratio[0]))
    width = torch.minimum(torch.sqrt(area * aspect), widths)
    height = torch.minimum(torch.sqrt(area / aspect), heights)
    return Boxes(draws[:, 2] * (widths - width), draws[:, 3] * (heights - height), width, height)


BOX_DRAWS = 4


def crop_resize(canvases: Tensor, boxes: Boxes, heights: Tensor, widths: Tensor, size: int) -> Tensor:
    """Bilinear crops: uint8 (B, C, H, W) -> uint8 (B, C, size, size).

    An image fills the top left corner (heights, widths) of its canvas; what lies beyond is never sampled.
    """
    steps = (torch.arange(size, device=canvases.device) + 0.5) / size  # (S,)
    x = (boxes.left[:, None] + steps * boxes.width[:, None] - 0.5).clamp(min=0)
    y = (boxes.top[:, None] + steps * boxes.height[:, None] - 0.5).clamp(min=0)
    x, y = torch.minimum(x, widths[:, None] - 1), torch.minimum(y, heights[:, None] - 1)
    x = (x + 0.5) * (2 / canvases.shape[3]) - 1
    y = (y + 0.5) * (2 / canvases.shape[2]) - 1
    grid = torch.stack([x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], dim=3)
    sampled = F.grid_sample(
        canvases.float(), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled.round_().clamp_(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class RandAugment:
    """Random operations of one strength for each image (Cubuk et al., 2020), by torchvision's functions.

    The images that drew the same operation are changed together, so a batch costs some thirty calls.
    """

    operations: int = 2
    strength: float = 0.3  # torchvision's default magnitude, 9 of 30

    @property
    def draws(self) -> int:
        """An operation and a sign for each round."""
        return 2 * self.operations

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """uint8 (B, C, H, W) -> the same shape."""
        images = images.clone()
        for turn in range(self.operations):
            chosen = (draws[:, 2 * turn] * len(OPERATIONS)).long()
            negative = draws[:, 2 * turn + 1] < 0.5
            for index, (change, signed) in enumerate(OPERATIONS.values()):
                for sign in (1, -1) if signed else (0,):
                    members = chosen == index if not signed else (chosen == index) & (negative == (sign < 0))
                    rows = members.nonzero()[:, 0].to(images.device, non_blocking=True)
                    if len(rows):
                        images[rows] = change(images[rows], self.strength * (sign or 1))
        return images


def _shear(images: Tensor, x: float, y: float) -> Tensor:
    degrees = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    return TF.affine(images, angle=0.0, translate=[0, 0], scale=1.0, shear=degrees, center=[0, 0])


def _translate(images: Tensor, x: float, y: float) -> Tensor:
    return TF.affine(images, angle=0.0, translate=[int(x), int(y)], scale=1.0, shear=[0.0, 0.0])


# name -> (images and strength from -1 to 1 -> images, has the strength a sign); torchvision's ranges
OPERATIONS: dict[str, tuple[Callable[[Tensor, float], Tensor], bool]] = {
    "identity": (lambda images, strength: images, False),
    "shear-x": (lambda images, strength: _shear(images, 0.3 * strength, 0.0), True),
    "shear-y": (lambda images, strength: _shear(images, 0.0, 0.3 * strength), True),
    "translate-x": (
        lambda images, strength: _translate(images, 150 / 331 * images.shape[-1] * strength, 0),
        True,
    ),
    "translate-y": (
        lambda images, strength: _translate(images, 0, 150 / 331 * images.shape[-2] * strength),
        True,
    ),
    "rotate": (lambda images, strength: TF.rotate(images, 30 * strength), True),
    "brightness": (lambda images, strength: TF.adjust_brightness(images, 1 + 0.9 * strength), True),
    "color": (lambda images, strength: TF.adjust_saturation(images, 1 + 0.9 * strength), True),
    "contrast": (lambda images, strength: TF.adjust_contrast(images, 1 + 0.9 * strength), True),
    "sharpness": (lambda images, strength: TF.adjust_sharpness(images, 1 + 0.9 * strength), True),
    "posterize": (lambda images, strength: TF.posterize(images, 8 - round(4 * strength)), False),
    "solarize": (lambda images, strength: TF.solarize(images, 255 * (1 - strength)), False),
    "autocontrast": (lambda images, strength: TF.autocontrast(images), False),
    "equalize": (lambda images, strength: TF.equalize(images), False),
}


@dataclass(frozen=True)
class Augmentation:
    """What happens to a training batch: perhaps a random resized crop, then stages; or noise for vectors."""

    name: str = "none"
    resized_crop: bool = False
    stages: tuple[Stage, ...] = ()
    noise: float = 0.0  # for vectors, in standard deviations of each coordinate

    @property
    def draws(self) -> int:
        """Uniform numbers that each image needs."""
        return BOX_DRAWS * self.resized_crop + sum(stage.draws for stage in self.stages)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Run the stages, after any random resized crop, on uint8 images (B, C, H, W)."""
        used = BOX_DRAWS * self.resized_crop
        for stage in self.stages:
            images = stage(images, draws[:, used : used + stage.draws])
            used += stage.draws
        return images


PARTS: dict[str, Augmentation] = {
    "none": Augmentation(),
    "pad-crop": Augmentation(stages=(Shift(flip=False),)),
    "flip": Augmentation(stages=(Shift(crop=False),)),
    "pad-crop-flip": Augmentation(stages=(Shift(),)),
    "random-resized-crop": Augmentation(resized_crop=True),
    "random-resized-crop-flip": Augmentation(resized_crop=True, stages=(Shift(crop=False),)),
    "randaugment": Augmentation(stages=(RandAugment(),)),
    "noise": Augmentation(noise=0.1),
}


LARGE = 64  # px of a side from which photographs are cut and no longer shifted


def augmentation(name: str | Augmentation | None) -> Augmentation:
    """Look up an augmentation; names joined by ``+`` are applied in turn, a resized crop always first."""
    if isinstance(name, Augmentation):
        return name
    parts = []
    for part in (name or "none").split("+"):
        if part not in PARTS:
            there = f"there are {', '.join(PARTS)}"
            raise PreceptorError(
                f"no augmentation {part!r}; {hint(part, PARTS, there)} (join several with +)"
            )
        parts.append(PARTS[part])
    return Augmentation(
        name or "none",
        any(part.resized_crop for part in parts),
        tuple(stage for part in parts for stage in part.stages),
        max(part.noise for part in parts),
    )


def usual_views(channels: int | None, side: int) -> str | None:
    """Random views that do most photographs good, which images in colour mostly are; None for others.

    What is grey (characters, scans) is seldom the same when it is mirrored.
    """
    if channels != 3:
        return None
    return "random-resized-crop-flip" if side >= LARGE else "pad-crop-flip"
