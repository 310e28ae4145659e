"""What goes into the student: its shape, its normalisation, mixed-up images and label distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.data.augment import usual_views
from preceptor.data.subsets import check_seed

if TYPE_CHECKING:
    from preceptor.data.split import Split

_STATISTICS_SAMPLE = 4096  # files decoded for the mean and deviation; arrays in memory are read whole
_CHUNK = 2048
_CONSTANT_CHANNEL = 1e-6  # deviation of pixels in [0, 1] up to which a channel is left unscaled


@dataclass(frozen=True)
class InputSpec:
    """The student's input: what its first layer takes and how values are normalised before it."""

    shape: tuple[int, ...]  # (C, H, W) or (d,)
    mean: tuple[float, ...]  # one a channel or dimension
    std: tuple[float, ...]

    @property
    def network_shape(self) -> tuple[int, int, int] | tuple[int]:
        """The shape as `preceptor.models.build` takes it."""
        if len(self.shape) == 3:
            return (self.shape[0], self.shape[1], self.shape[2])
        return (self.shape[0],)


def input_spec(split: Split, kind: str, image_size: int | None) -> InputSpec:
    """Shape, mean and deviation of the inputs, from the training split alone, whatever the number of threads."""
    if kind == "vectors":
        # torch would deal a sum out to its threads, and its last digits would follow their number.
        vectors = np.asarray(split.load(np.arange(len(split))), dtype=np.float64)  # (N, d)
        scales = tuple(_column_scales(vectors).tolist())
        return InputSpec(vectors.shape[1:], tuple(vectors.mean(0).tolist()), scales)
    shape = input_shape(split, kind, image_size)
    mean, std = _pixel_statistics(split)
    usable = tuple(value if value > _CONSTANT_CHANNEL else 1.0 for value in std)
    return InputSpec((len(mean), *shape[1:]), mean, usable)


def input_shape(split: Split, kind: str, image_size: int | None) -> tuple[int, ...]:
    """What the student's first layer takes, from a single sample: (C, side, side), or (d,) for vectors.

    Networks see squares, as everywhere here: without a size, the middle square of images that have one.
    """
    if kind == "images" and image_size is None and (not split.uniform or split.image_shape is None):
        raise PreceptorError(
            "the images differ in size; give the size to bring them to, such as image_size=224 (--image-size 224)"
        )
    one = tuple(split.load(np.array([0]))[0].shape)
    if kind == "vectors":
        return one
    side = min(one[1:]) if image_size is None else image_size
    return (one[0], side, side)


def view_side(split: Split, spec: InputSpec, wanted: int) -> int:
    """Side of the squares that are loaded, augmented and mixed: the student's own, or what the teacher can make use of.

    A teacher of larger images than the student's sees the same view as it does, but with the detail that it knows;
    never more than there is in the files.
    """
    own = spec.shape[-1]
    if wanted <= own or len(spec.shape) == 1:
        return own
    sizes = [split.sample_shape] if split.sample_shape else map(split.shape, range(len(split)))
    return max(own, min(wanted, max(min(size[1:]) for size in sizes)))


def cut_to_squares(split: Split, kind: str, image_size: int | None) -> list[str]:
    """Says so where no size was asked for and images lose their ends."""
    shape = split.image_shape
    if kind == "vectors" or image_size is not None or shape is None or shape[1] == shape[2]:
        return []
    side = min(shape[1:])
    return [
        f"the images have {shape[1]} x {shape[2]} px (height x width), and networks see squares: only the middle "
        f"{side} x {side} px of each are used; pad or squash the images beforehand to keep all of them"
    ]


def views_not_taken(spec: InputSpec, augment: str | None, cache_teacher: bool) -> list[str]:
    """Says so where nothing was said of random views and the images look as if they would do good."""
    views = usual_views(spec.shape[0], spec.shape[-1]) if len(spec.shape) == 3 else None
    if augment is not None or cache_teacher or views is None:
        return []
    return [
        f"if these images are photographs, random views of them are likely to do much good: augment={views!r} "
        f"(--augment {views}); augment='none' leaves them as they are and this unsaid"
    ]


def _column_scales(vectors: np.ndarray) -> np.ndarray:
    """What to divide each column (N, d) by, whatever its unit: the deviation, or the size of a constant column.

    A column counts as constant where it varies by no more than float32, in which it is kept, rounds numbers of its
    size: to be blown up to a deviation of 1, rounding is no signal. Divided by its size it stays next to nothing.
    """
    float32 = np.finfo(np.float32)
    std, size = vectors.std(0), np.abs(vectors).max(0)
    scale = np.where(std > float32.eps * size, std, size)
    return np.where(scale > float32.tiny, scale, 1.0)


def _pixel_statistics(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel in [0, 1]: integers are summed, which is exact in any order."""
    count = len(split)
    if not count:
        raise PreceptorError("the training set is empty; give at least one image a class")
    if split.uniform or count <= _STATISTICS_SAMPLE:
        chosen = np.arange(count)
    else:
        chosen = np.linspace(0, count - 1, _STATISTICS_SAMPLE).astype(np.int64)
    channels = split.channels or 0
    total, squares = torch.zeros(2, channels, dtype=torch.int64)
    pixels = 0
    for start in range(0, len(chosen), _CHUNK):
        images = split.load(chosen[start : start + _CHUNK])
        for group in [images] if isinstance(images, Tensor) else [image[None] for image in images]:
            values = group.int()
            total += values.sum((0, 2, 3), dtype=torch.int64)
            squares += values.square().sum((0, 2, 3), dtype=torch.int64)
            pixels += values.numel() // channels
    sums = list(zip(total.tolist(), squares.tolist(), strict=True))
    mean = tuple(one / (255 * pixels) for one, _ in sums)
    return mean, tuple(math.sqrt(pixels * square - one**2) / (255 * pixels) for one, square in sums)


class Normalise(torch.nn.Module):
    """(x - mean) / std, with the constants on the device; a view larger than the network's input is shrunk first."""

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        shape = (1, -1) + (1,) * (len(spec.shape) - 1)
        self.register_buffer("mean", torch.tensor(spec.mean, dtype=torch.float32).view(shape))
        self.register_buffer("std", torch.tensor(spec.std, dtype=torch.float32).view(shape))
        self.sides = spec.shape[1:]  # () for vectors

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalised inputs of the network's size.

        Args:
            inputs: (B, C, H, W), floats in [0, 1] or uint8; or vectors (B, d) of floats.
        """
        if not inputs.is_floating_point():
            inputs = self._scaled(inputs)
        if inputs.shape[2:] != self.sides:
            inputs = F.interpolate(inputs, self.sides, mode="bilinear", antialias=True)
        return (inputs - self.mean) / self.std

    def _scaled(self, pixels: Tensor) -> Tensor:
        """Pixels as the loader gives them: in [0, 1]."""
        if pixels.dtype != torch.uint8 or not self.sides:
            expected = "floats in [0, 1] or uint8" if self.sides else "floats"
            raise PreceptorError(
                f"inputs of {pixels.dtype} came; {expected} were expected: convert them (inputs.float())"
            )
        return pixels.float() / 255


def label_distribution(labels: Tensor, num_classes: int, smoothing: float, labelled: float = 1.0) -> Tensor:
    """One-hot rows (B, C), or smoothed ones: 1 - smoothing on the label, the rest spread over all classes.

    Args:
        labels: (B,); -1 for rows without a label.
        num_classes: C.
        smoothing: Share of a label that all classes get.
        labelled: The share of rows that have a label. Below 1, rows without one are 0 and the others larger by so
            much that a mean over all rows is about that over those with a label.
    """
    one_hot = torch.zeros(len(labels), num_classes, device=labels.device)
    one_hot.scatter_(1, labels.clamp(min=0)[:, None], 1.0)
    spread = one_hot if smoothing == 0 else one_hot * (1 - smoothing) + smoothing / num_classes
    return spread if labelled == 1 else spread * (labels >= 0)[:, None] / labelled


def mixup_share(alpha: float, seed: int, step: int) -> float:
    """The share of the own image at this step, from Beta(alpha, alpha)."""
    check_seed(seed)
    return float(np.random.default_rng([seed, step, 0x6D78]).beta(alpha, alpha))


def mix_up(images: Tensor, targets: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Mix each row with the one half a batch away (Zhang et al. 2018): share x_i + (1 - share) x_j.

    The batch is in random order, so these are random pairs; and as rows are dealt out to processes in turn,
    a pair meets in the same process.
    """
    half = len(images) // 2
    mixed = images * share + images.roll(half, 0) * (1 - share)
    return mixed, targets * share + targets.roll(half, 0) * (1 - share)
