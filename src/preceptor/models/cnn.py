"""A small convolutional network for small images such as rendered characters."""

from __future__ import annotations

from torch import Tensor, nn

from preceptor.models.network import Network, initialise, pooled


class SmallCNN(Network):
    """Three 3x3 convolutions of widths W, 2W, 4W, each halving the image; the maps are their outputs."""

    def __init__(self, width: int, num_classes: int, channels: int = 1) -> None:
        super().__init__()
        widths = (channels, width, 2 * width, 4 * width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(widths[index], widths[index + 1], 3, padding=1, bias=False),
                nn.BatchNorm2d(widths[index + 1]),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )
            for index in range(3)
        )
        self.classifier = nn.Linear(widths[3], num_classes)
        initialise(self)

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Outputs of the three blocks, and the pooled last one."""
        maps = []
        current = images
        for block in self.blocks:
            current = block(current)
            maps.append(current)
        return tuple(maps), pooled(current)
