"""Residual networks of 18, 34 and 50 layers (He et al., 2016), for 32 px and for larger images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from preceptor.models.network import Network, initialise, pooled

# depth -> (blocks of the four stages, is a block a bottleneck)
DEPTHS = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}


def normed(width_in: int, width_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(width_out),
    )


class Block(nn.Module):
    """Two 3x3 convolutions, or a bottleneck 1x1, 3x3 (with the stride, as in torchvision), 1x1."""

    def __init__(self, width_in: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        width_out = 4 * width if bottleneck else width
        if bottleneck:
            self.layers = nn.ModuleList(
                [normed(width_in, width, 1), normed(width, width, 3, stride), normed(width, width_out, 1)]
            )
        else:
            self.layers = nn.ModuleList([normed(width_in, width, 3, stride), normed(width, width_out, 3)])
        changes = stride != 1 or width_in != width_out
        self.shortcut = normed(width_in, width_out, 1, stride) if changes else None

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, c, h, w) -> (B, c', h / stride, w / stride)."""
        current = inputs
        for index, layer in enumerate(self.layers):
            current = layer(current if index == 0 else F.relu(current, inplace=True))
        return F.relu(current + (inputs if self.shortcut is None else self.shortcut(inputs)), inplace=True)


class ResNet(Network):
    """ResNet-depth; the maps are the outputs of the four stages.

    Small images get a 3x3 first convolution of stride 1 and no pooling after it.
    """

    def __init__(self, depth: int, num_classes: int, channels: int = 3, small: bool = False) -> None:
        super().__init__()
        counts, bottleneck = DEPTHS[depth]
        if small:
            self.stem = nn.Sequential(normed(channels, 64, 3), nn.ReLU(inplace=True))
        else:
            self.stem = nn.Sequential(
                normed(channels, 64, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
            )
        self.stages = nn.ModuleList()
        width_in = 64
        for stage, count in enumerate(counts):
            width = 64 * 2**stage
            blocks = []
            for index in range(count):
                blocks.append(Block(width_in, width, 2 if index == 0 and stage > 0 else 1, bottleneck))
                width_in = 4 * width if bottleneck else width
            self.stages.append(nn.Sequential(*blocks))
        self.classifier = nn.Linear(width_in, num_classes)
        initialise(self)

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Outputs of the four stages, and the pooled last one."""
        maps = []
        current = self.stem(images)
        for stage in self.stages:
            current = stage(current)
            maps.append(current)
        return tuple(maps), pooled(current)
