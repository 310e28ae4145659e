"""Convolutions in many narrow groups as torch operators, for networks merged into one (see `merged`).

The kernels are in `narrow_kernels`. To torch.compile the operators are opaque, so that it fuses what lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.narrow_kernels import gather, weight_sums

CHANNELS = (16, 32, 64, 128)  # of a group, in and out
KERNELS = (1, 3)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _sized(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _like(tensor: Tensor, channels: int, height: int, width: int) -> Tensor:
    """An empty channels-last tensor of as many images."""
    size = (len(tensor), channels, height, width)
    return torch.empty(size, dtype=tensor.dtype, device=tensor.device, memory_format=torch.channels_last)


@torch.library.custom_op("preceptor_experiments::narrow_conv", mutates_args=())
def _forward(inputs: Tensor, weight: Tensor, packed: Tensor, stride: int, padding: int) -> Tensor:
    """(B, S i, h, w), (S o, i, k, k), (S, k, k, i, o) -> (B, S o, h', w').

    `packed` holds the weights again, as the kernels want them: rounded once for both passes. The gradient, which is
    not rounded, goes to `weight`.
    """
    result = _forward_fake(inputs, weight, packed, stride, padding)
    return gather(inputs, packed, result, stride, padding, False)


@_forward.register_fake
def _forward_fake(inputs: Tensor, weight: Tensor, packed: Tensor, stride: int, padding: int) -> Tensor:
    height, width = (_sized(size, packed.shape[1], stride, padding) for size in inputs.shape[2:])
    return _like(inputs, len(weight), height, width)


@torch.library.custom_op("preceptor_experiments::narrow_conv_input_grad", mutates_args=())
def _input_grad(grad: Tensor, packed: Tensor, height: int, width: int, stride: int, padding: int) -> Tensor:
    """(B, S o, h', w') -> (B, S i, h, w)."""
    result = _input_grad_fake(grad, packed, height, width, stride, padding)
    return gather(grad, packed, result, stride, padding, True)


@_input_grad.register_fake
def _input_grad_fake(
    grad: Tensor, packed: Tensor, height: int, width: int, stride: int, padding: int
) -> Tensor:
    return _like(grad, len(packed) * packed.shape[3], height, width)


@torch.library.custom_op("preceptor_experiments::narrow_conv_weight_grad", mutates_args=())
def _weight_grad(inputs: Tensor, grad: Tensor, groups: int, kernel: int, stride: int, padding: int) -> Tensor:
    """(B, S i, h, w), (B, S o, h', w') -> (S o, i, k, k) float32."""
    sums = weight_sums(inputs, grad, groups, kernel, stride, padding)
    return sums.permute(0, 4, 3, 1, 2).contiguous().flatten(0, 1)


@_weight_grad.register_fake
def _weight_grad_fake(
    inputs: Tensor, grad: Tensor, groups: int, kernel: int, stride: int, padding: int
) -> Tensor:
    size = (grad.shape[1], inputs.shape[1] // groups, kernel, kernel)
    return inputs.new_empty(size, dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    images, weight, packed, ctx.stride, ctx.padding = inputs
    ctx.weight_dtype = weight.dtype
    ctx.save_for_backward(images, packed)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    images, packed = ctx.saved_tensors
    of_images = of_weight = None
    if ctx.needs_input_grad[0]:
        of_images = _input_grad(grad, packed, *images.shape[2:], ctx.stride, ctx.padding)
    if ctx.needs_input_grad[1]:
        of_weight = _weight_grad(images, grad, len(packed), packed.shape[1], ctx.stride, ctx.padding)
        of_weight = of_weight.to(ctx.weight_dtype)
    return of_images, of_weight, None, None, None


_forward.register_autograd(_backward, setup_context=_keep)


def narrow_conv(inputs: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """What `torch.nn.functional.conv2d` gives in groups without a bias, in the type of the inputs.

    Args:
        inputs: (B, S i, h, w), best channels-last; the output is.
        weight: (S o, i, k, k) of any type; its gradient is not rounded to the type of the inputs.
        stride: Of rows and columns.
        padding: Zeros on each side.
    """
    after, before, kernel, across = weight.shape
    groups = inputs.shape[1] // before
    channels = (before, after // max(groups, 1))
    if inputs.shape[1] != groups * before or after != groups * channels[1] or not groups:
        raise ValueError(f"inputs of {inputs.shape[1]} channels do not fit weights of {tuple(weight.shape)}")
    if not set(channels) <= set(CHANNELS) or kernel not in KERNELS or kernel != across:
        raise ValueError(
            f"a group of {channels[0]} to {channels[1]} channels under {kernel}x{across} was given, "
            f"{CHANNELS} channels and square kernels of {KERNELS} are taken: use torch's convolution"
        )
    if inputs.dtype not in DTYPES:
        raise TypeError(f"inputs are {inputs.dtype}: convert them to one of {DTYPES}")
    rows, columns = (_sized(size, kernel, stride, padding) for size in inputs.shape[2:])
    if max(inputs.numel(), len(inputs) * after * rows * columns) >= 2**31:
        raise ValueError("the kernels count in 32 bits: give fewer than 2**31 numbers at once")
    packed = weight.detach().unflatten(0, (groups, -1)).permute(0, 3, 4, 2, 1).to(inputs.dtype).contiguous()
    return _forward(inputs, weight, packed, stride, padding)


def takes(layer: nn.Conv2d) -> bool:
    """Whether `Narrow` can stand for layers like this one side by side."""
    kernel, stride, padding = layer.kernel_size, layer.stride, layer.padding
    square = not isinstance(padding, str) and all(len(set(pair)) == 1 for pair in (kernel, stride, padding))
    plain = layer.bias is None and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
    narrow = layer.groups == 1 and {layer.in_channels, layer.out_channels} <= set(CHANNELS)
    return square and plain and narrow and kernel[0] in KERNELS and layer.weight.dtype in DTYPES


class Narrow(nn.Module):
    """S convolutions side by side, each with its own share of the channels."""

    def __init__(self, layers: Sequence[nn.Conv2d]) -> None:
        super().__init__()
        one = layers[0]
        if not takes(one):
            raise ValueError(f"{one} has no kernel here: use a torch convolution in groups")
        self.stride, self.padding = one.stride[0], one.padding[0]
        self.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))  # (S o, i, k, k)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, S i, h, w) -> (B, S o, h', w'), under autocast in its type."""
        device = inputs.device.type
        if torch.is_autocast_enabled(device):
            inputs = inputs.to(torch.get_autocast_dtype(device))
        return narrow_conv(inputs, self.weight, self.stride, self.padding)
