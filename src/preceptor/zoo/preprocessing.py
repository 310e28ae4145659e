"""How a teacher wants its images: one implementation for extraction and for distillation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from preceptor.core import PreceptorError
from preceptor.zoo.limits import MAX_CHANNELS, MAX_FEATURES, MAX_IMAGE_SIDE

if TYPE_CHECKING:
    from torch import Tensor

Interpolation = Literal["nearest", "bilinear", "bicubic"]
Crop = Literal["center", "square", "none", "squash"]
Finite = Annotated[float, Field(allow_inf_nan=False)]

LARGEST = 2.0  # of a float image: it ends at 1, but for what resizing or noise may add; 8 bits go to 255


class Preprocessing(BaseModel):
    """Resize, crop and normalise, as the teacher was trained to see its inputs.

    Attributes:
        input_size: ``(C, H, W)`` for images, ``(d,)`` for ready feature vectors.
        resize: Length that the shorter side is resized to before the crop; None leaves images as they are.
        crop: ``center`` cuts ``H x W`` out of the middle after resizing, ``square`` cuts the middle square and
            then resizes it, as training here does, ``squash`` resizes to ``H x W`` whatever the shape, ``none``
            demands that images have the right size already.
        interpolation: How to resize.
        antialias: Whether to smooth when shrinking, as PIL does.
        mean: Subtracted, one number a channel, after scaling to [0, 1]; empty for none.
        std: Divided by, one number a channel; empty for none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_size: tuple[int, int, int] | tuple[int]
    resize: int | None = Field(default=None, ge=1, le=MAX_IMAGE_SIDE)
    crop: Crop = "none"
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    mean: tuple[Finite, ...] = ()
    std: tuple[Finite, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        channels, *sides = self.input_size
        limit = MAX_CHANNELS if sides else MAX_FEATURES
        if not 1 <= channels <= limit or not all(1 <= side <= MAX_IMAGE_SIDE for side in sides):
            raise ValueError(
                f"input_size {self.input_size} is out of bounds: sides up to {MAX_IMAGE_SIDE}, "
                f"channels up to {limit}"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values and len(values) != channels:
                raise ValueError(f"{name} has {len(values)} numbers for {channels} channels")
        if any(value <= 0 for value in self.std):
            raise ValueError(f"std must be above 0, got {self.std}")
        if not sides and (self.resize is not None or self.crop != "none"):
            raise ValueError("feature vectors can be neither resized nor cropped")
        resized = (self.resize, self.interpolation, self.antialias) != (None, "bilinear", True)
        if self.crop == "square" and (resized or sides[0] != sides[1]):
            raise ValueError(
                "crop 'square' resizes the middle square to an input_size that is square, bilinearly and smoothed: "
                "leave resize, interpolation and antialias out"
            )
        return self

    @classmethod
    def for_size(
        cls, input_size: Sequence[int], mean: Sequence[float] = (), std: Sequence[float] = ()
    ) -> Self:
        """The plain choice, as training here sees images: the middle square; squashed if the input is none."""
        values: dict[str, Any] = {"input_size": tuple(input_size), "mean": tuple(mean), "std": tuple(std)}
        if len(values["input_size"]) == 3:
            _, height, width = values["input_size"]
            values["crop"] = "square" if height == width else "squash"
        return cls(**values)

    def apply(self, images: Tensor | Sequence[Tensor]) -> Tensor:
        """Normalised network inputs, ``(B, C, H, W)`` or ``(B, d)``.

        Args:
            images: Images in [0, 1] or uint8 ``(B, C, H, W)``, a list of ``(C, H, W)`` of any sizes, or
                vectors ``(B, d)``.
        """
        import torch

        if len(self.input_size) == 1:
            return self._normalise(self._vectors(images))
        if isinstance(images, torch.Tensor):
            return self._normalise(self._fit(images))
        # Images of one size go through together: a folder of equal images costs no more than an array.
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, image in enumerate(images):
            groups.setdefault(tuple(image.shape), []).append(index)
        if not groups:
            raise PreceptorError("no images came to be preprocessed; at least one is needed")
        fitted = {i: row for group in groups.values() for i, row in self._fit_group(images, group)}
        return self._normalise(torch.stack([fitted[i] for i in range(len(images))]))

    def _fit_group(self, images: Sequence[Tensor], group: list[int]) -> list[tuple[int, Tensor]]:
        import torch

        return list(zip(group, self._fit(torch.stack([images[i] for i in group])), strict=True))

    def _vectors(self, vectors: Tensor | Sequence[Tensor]) -> Tensor:
        import torch

        rows = vectors if isinstance(vectors, torch.Tensor) else torch.stack(list(vectors))
        if rows.ndim != 2 or rows.shape[1] != self.input_size[0]:
            raise PreceptorError(
                f"inputs of shape {tuple(rows.shape)} came; this teacher takes vectors of "
                f"{self.input_size[0]} numbers"
            )
        return rows.float()

    def _fit(self, images: Tensor) -> Tensor:
        """Float images ``(B, C, H, W)`` in [0, 1] of the input size."""
        from torchvision.transforms.v2 import functional as F

        channels, height, width = self.input_size  # type: ignore[misc]  # images have three numbers
        if images.ndim != 4:
            raise PreceptorError(
                f"inputs of shape {tuple(images.shape)} came; this teacher takes images (B, "
                f"{channels}, height, width)"
            )
        _check_range(images)
        if self.crop == "square":
            return _to_float(_middle_squares(_with_channels(images, channels, like_files=True), height))
        images = _to_float(_with_channels(images, channels))
        before = images.shape[-2:]
        mode, smooth = F.InterpolationMode(self.interpolation), self.antialias
        if self.crop == "squash":
            images = F.resize(images, [height, width], interpolation=mode, antialias=smooth)
        elif self.resize is not None and min(before) != self.resize:
            images = F.resize(images, [self.resize], interpolation=mode, antialias=smooth)
        if images.shape[-2:] != before and self.interpolation == "bicubic":
            images = images.clamp(0, 1)  # bicubic overshoots; 8-bit images cannot
        if self.crop == "center":
            images = F.center_crop(images, [height, width])
        if tuple(images.shape[-2:]) != (height, width):
            raise PreceptorError(
                f"images of {before[0]}x{before[1]} came; this teacher takes {height}x{width} and its "
                "card asks for "
                "no cropping: resize them, or add the teacher with a resize and a crop"
            )
        return images

    def _normalise(self, inputs: Tensor) -> Tensor:
        import torch

        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        if self.mean:
            inputs = inputs - torch.tensor(self.mean, dtype=inputs.dtype, device=inputs.device).view(shape)
        if self.std:
            inputs = inputs / torch.tensor(self.std, dtype=inputs.dtype, device=inputs.device).view(shape)
        return inputs


def as_preprocessing(value: Preprocessing | dict[str, Any] | None) -> Preprocessing | None:
    """Preprocessing from a dict, with one sentence for what is wrong with it."""
    if value is None or isinstance(value, Preprocessing):
        return value
    try:
        return Preprocessing.model_validate(value)
    except ValidationError as error:
        raise PreceptorError(f"the preprocessing is not valid{first_fault(error)}") from error


def first_fault(error: ValidationError) -> str:
    """Where the first fault is and what it is, as the end of a sentence."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("tuple["))
    reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return f"{' at ' + where if where else ''}: {reason}"


def _check_range(images: Tensor) -> None:
    """Refuse what is neither 8-bit nor a float image in [0, 1], as far as that can be seen without a wait for a GPU."""
    import torch

    if images.dtype == torch.uint8:
        return
    expected = "expected uint8 from 0 to 255, or floats from 0 to 1"
    if not images.is_floating_point():
        raise PreceptorError(f"images of {images.dtype} came; {expected}: say images.to(torch.uint8)")
    if images.device.type == "cpu" and images.numel() and float(images.amax()) > LARGEST:
        raise PreceptorError(
            f"float images with values up to {float(images.amax()):.4g} came; {expected}: divide them by 255"
        )


def _to_float(images: Tensor) -> Tensor:
    """8-bit images in [0, 1]; others as they are."""
    import torch

    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _middle_squares(images: Tensor, size: int) -> Tensor:
    """The middle square of each image, resized: ``(B, C, H, W)`` -> ``(B, C, size, size)``.

    8-bit images go through the loader's own function, so that a network sees the bits it was trained on. Float
    squares are what a student sees in training: they stay on their device, where a CUDA graph may record this.
    """
    import numpy as np
    import torch
    from torchvision.transforms.v2 import functional as F

    from preceptor.data.images import fit

    height, width = images.shape[-2:]
    if height == width == size:
        return images
    if images.dtype != torch.uint8:
        images = images.float()
        if height == width:
            return F.resize(images, [size, size], antialias=True)
    # Pillow has images of one channel in float, and of up to four in 8 bits.
    apart = images.dtype != torch.uint8 or images.shape[1] > 4
    pictures = (images.flatten(0, 1)[:, None] if apart else images).cpu().numpy()
    squares = torch.from_numpy(np.stack([fit(picture, size) for picture in pictures]))
    return squares.view(*images.shape[:2], size, size).to(images.device)


def _with_channels(images: Tensor, channels: int, like_files: bool = False) -> Tensor:
    """Grey images repeated for a colour teacher, colour images turned grey for a grey one.

    `like_files` turns 8-bit colours grey to the bit as Pillow does when a file is read for a grey network.
    """
    import torch
    from torchvision.transforms.v2 import functional as F

    came = images.shape[1]
    if came == channels:
        return images
    if came == 1:
        return images.expand(-1, channels, -1, -1)
    if came == 3 and channels == 1:
        if like_files and images.dtype == torch.uint8:
            red, green, blue = images.int().split(1, dim=1)
            return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8)
        return F.rgb_to_grayscale(images)
    raise PreceptorError(f"images with {came} channels came; this teacher takes {channels}")
