"""The two halves of separable convolutions, side by side in one wide network (see `merged`).

Channels last, a pointwise convolution in groups is a product of matrices for each group, and a depthwise one a sum of
shifted images, which torch.compile fuses into one kernel. Libraries have slow kernels for both, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def is_pointwise(layer: nn.Conv2d) -> bool:
    """Whether a convolution looks at one pixel and at all channels."""
    return layer.kernel_size == layer.stride == (1, 1) and layer.groups == 1 and layer.bias is None


def is_depthwise(layer: nn.Conv2d) -> bool:
    """Whether a convolution looks at one channel alone."""
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str) and layer.dilation == (1, 1)
    return plain and layer.groups == layer.in_channels == layer.out_channels > 1 and layer.bias is None


def _in_autocast(inputs: Tensor) -> Tensor:
    device = inputs.device.type
    return inputs.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else inputs


class Pointwise(nn.Module):
    """S pointwise convolutions, each with its own share of the channels."""

    def __init__(self, layers: Sequence[nn.Conv2d]) -> None:
        super().__init__()
        self.count = len(layers)
        self.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))  # (S o, i, 1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, S i, h, w) -> (B, S o, h, w)."""
        inputs = _in_autocast(inputs)
        images, _, height, width = inputs.shape
        pixels = inputs.permute(0, 2, 3, 1).reshape(images * height * width, self.count, -1)  # (B h w, S, i)
        weight = self.weight.to(inputs.dtype).view(self.count, -1, pixels.shape[-1])  # (S, o, i)
        result = torch.bmm(pixels.transpose(0, 1), weight.transpose(1, 2))  # (S, B h w, o)
        return result.transpose(0, 1).reshape(images, height, width, -1).permute(0, 3, 1, 2)


class Depthwise(nn.Module):
    """S depthwise convolutions, each with its own share of the channels."""

    def __init__(self, layers: Sequence[nn.Conv2d]) -> None:
        super().__init__()
        one = layers[0]
        self.stride, self.padding = one.stride, one.padding
        self.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))  # (S c, 1, k, k)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, S c, h, w) -> (B, S c, h', w'), summed in the precision of the weights."""
        inputs = _in_autocast(inputs)
        (rows, columns), (down, right) = self.weight.shape[2:], self.stride
        above, left = self.padding
        padded = nn.functional.pad(inputs, (left, left, above, above))
        height, width = (
            (size - kernel) // step + 1
            for size, kernel, step in zip(padded.shape[2:], (rows, columns), self.stride, strict=True)
        )
        total = sum(
            padded[:, :, i : i + down * (height - 1) + 1 : down, j : j + right * (width - 1) + 1 : right]
            * self.weight[:, 0, i, j, None, None]
            for i in range(rows)
            for j in range(columns)
        )
        return total.to(inputs.dtype)
