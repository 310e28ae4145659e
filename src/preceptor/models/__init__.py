"""Networks for students and teachers. `build` makes one by name; everything not listed comes from timm."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext

import torch

from preceptor.core import PreceptorError
from preceptor.defaults import own_defaults
from preceptor.models.cnn import SmallCNN
from preceptor.models.mlp import MLP
from preceptor.models.mobilenet import MobileNet
from preceptor.models.network import Network
from preceptor.models.resnet import DEPTHS, ResNet
from preceptor.models.wide_resnet import WideResNet
from preceptor.wording import hint

__all__ = ["ARCHITECTURES", "EXAMPLES", "Network", "build"]

SEEDS = 2**63  # torch's generators take no larger ones
SMALL_IMAGE = 64  # px; below this, networks keep the resolution in their first layer

Shape = tuple[int, ...]


def _wide_resnet(options: str, num_classes: int, shape: Shape) -> Network:
    match = re.fullmatch(r"(\d+)-(\d+)", options)
    if not match or int(match[1]) < 10 or (int(match[1]) - 4) % 6 or int(match[2]) < 1:
        raise PreceptorError(
            f"wrn-{options}: expected wrn-DEPTH-WIDTH with a depth of 6n+4 (10, 16, 22, …), such as wrn-16-1"
        )
    return WideResNet(int(match[1]), int(match[2]), num_classes, _image("wrn", shape)[0])


def _mobilenet(options: str, num_classes: int, shape: Shape) -> Network:
    match = re.fullmatch(r"\d*\.?\d+", options)
    if not match or not 0.1 <= float(options) <= 4:
        raise PreceptorError(
            f"mobilenet-{options}: expected mobilenet-WIDTH with a width from 0.1 to 4, such as mobilenet-0.5"
        )
    channels, height, width = _image("mobilenet", shape)
    return MobileNet(float(options), num_classes, channels, small=min(height, width) < SMALL_IMAGE)


def _resnet(options: str, num_classes: int, shape: Shape) -> Network:
    if options not in {str(depth) for depth in DEPTHS}:
        raise PreceptorError(f"resnet-{options}: expected one of {', '.join(f'resnet-{d}' for d in DEPTHS)}")
    channels, height, width = _image("resnet", shape)
    return ResNet(int(options), num_classes, channels, small=min(height, width) < SMALL_IMAGE)


def _cnn(options: str, num_classes: int, shape: Shape) -> Network:
    channels, height, width = _image("cnn", shape)
    if min(height, width) < 8:
        raise PreceptorError(
            f"cnn halves the image three times and got {height} x {width} px; use 8 px or more"
        )
    return SmallCNN(_count("cnn-WIDTH", "cnn-16", options), num_classes, channels)


def _mlp(options: str, num_classes: int, shape: Shape) -> Network:
    inputs = 1
    for size in shape:
        inputs *= size
    return MLP(_count("mlp-HIDDEN", "mlp-256", options), num_classes, inputs)


def _timm(options: str, num_classes: int, shape: Shape, pretrained: bool = False) -> Network:
    from preceptor.models.timm_model import TimmNetwork  # timm takes a second to import

    return TimmNetwork(options, num_classes, _image("timm", shape), pretrained)


def _count(form: str, example: str, options: str) -> int:
    if not re.fullmatch(r"\d{1,6}", options) or int(options) < 1:
        raise PreceptorError(
            f"{form.split('-')[0]}-{options}: expected {form} with a whole number, such as {example}"
        )
    return int(options)


def _image(family: str, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise PreceptorError(
            f"{family} takes images (C, H, W) and got inputs of shape {shape}; use mlp-256 for vectors"
        )
    return shape[0], shape[1], shape[2]


ARCHITECTURES: dict[str, Callable[..., Network]] = {
    "wrn": _wide_resnet,
    "mobilenet": _mobilenet,
    "resnet": _resnet,
    "cnn": _cnn,
    "mlp": _mlp,
    "timm": _timm,
}

EXAMPLES = (
    "wrn-16-1", "wrn-16-2", "wrn-40-1", "wrn-40-2",
    "mobilenet-1.0", "mobilenet-0.75", "mobilenet-0.5", "mobilenet-0.25",
    "resnet-18", "resnet-34", "resnet-50",
    "cnn-16", "mlp-256", "timm:resnet18",
)  # fmt: skip


@own_defaults()
def build(
    arch: str,
    num_classes: int,
    input_shape: tuple[int, int, int] | tuple[int] = (3, 32, 32),
    seed: int | None = None,
    *,
    pretrained: bool = False,
) -> Network:
    """Make a network by name.

    Args:
        arch: `wrn-D-K`, `mobilenet-W`, `resnet-18|34|50`, `cnn-W`, `mlp-H` or `timm:NAME`.
        num_classes: Rows of the classifier.
        input_shape: (C, H, W), or (d,) for vectors. Below 64 px `mobilenet` and `resnet` keep the
            resolution in their first layer.
        seed: Of the initial weights, which then leave the caller's random state alone; None: they are drawn from
            torch's own generator, as any module's are (`torch.manual_seed` before it makes them reproducible).
        pretrained: Load timm's published weights (downloads them); only for `timm:`.

    Returns:
        A network in training mode on the CPU.
    """
    prefix, separator, options = re.match(r"([^-:]*)([-:]?)(.*)", arch).groups()  # type: ignore[union-attr]
    if prefix not in ARCHITECTURES or separator != (":" if prefix == "timm" else "-"):
        there = f"there are such as {', '.join(EXAMPLES)}"
        raise PreceptorError(f"no architecture {arch!r}; {hint(arch, EXAMPLES, there)} (others: timm:NAME)")
    if num_classes < 1 or any(size < 1 for size in input_shape):
        raise PreceptorError(
            f"{arch}: got {num_classes} classes and inputs {input_shape}; all must be positive"
        )
    if pretrained and prefix != "timm":
        raise PreceptorError(f"{arch} has no published weights; pretrained=True goes with timm:NAME")
    if seed is not None and not 0 <= seed < SEEDS:
        raise PreceptorError(f"seed {seed} came; expected a whole number from 0 to below 2**63")
    extra = {"pretrained": True} if pretrained else {}
    with nullcontext() if seed is None else torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(int(seed))
        network = ARCHITECTURES[prefix](options, num_classes, tuple(input_shape), **extra)
    network.arch = arch
    return network
