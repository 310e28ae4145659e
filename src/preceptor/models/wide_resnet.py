"""Wide residual networks for small images (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from preceptor.models.network import Network, initialise, pooled


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm and ReLU before each ("pre-activation")."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width_in)
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(width_in, width_out, 1, stride, bias=False) if width_in != width_out else None
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, c, h, w) -> (B, c', h / stride, w / stride)."""
        active = F.relu(self.norm1(inputs))
        residual = self.conv2(F.relu(self.norm2(self.conv1(active))))
        # Where the width changes, the shortcut starts after the activation, as in the original code.
        return residual + (inputs if self.shortcut is None else self.shortcut(active))


class WideResNet(Network):
    """WRN-depth-width; the maps are the outputs of the three groups."""

    def __init__(self, depth: int, width: int, num_classes: int, channels: int = 3) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        widths = (16, 16 * width, 32 * width, 64 * width)
        self.conv = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.groups = nn.ModuleList(
            nn.Sequential(
                *(
                    Block(
                        widths[group] if index == 0 else widths[group + 1],
                        widths[group + 1],
                        stride=2 if index == 0 and group > 0 else 1,
                    )
                    for index in range(blocks)
                )
            )
            for group in range(3)
        )
        self.norm = nn.BatchNorm2d(widths[3])
        self.classifier = nn.Linear(widths[3], num_classes)
        initialise(self)

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Outputs of the three groups, and their pooled features."""
        maps = []
        current = self.conv(images)
        for group in self.groups:
            current = group(current)
            maps.append(current)
        return tuple(maps), pooled(F.relu(self.norm(current)))
