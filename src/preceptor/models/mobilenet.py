"""MobileNet, the first version: depthwise separable convolutions (Howard et al., 2017)."""

from __future__ import annotations

from torch import Tensor, nn

from preceptor.models.network import Network, initialise, pooled

# (output channels at width 1, stride) of the thirteen separable convolutions, grouped by resolution.
STAGES = (
    ((64, 1), (128, 2), (128, 1)),
    ((256, 2), (256, 1)),
    ((512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1)),
    ((1024, 2), (1024, 1)),
)


def convolution(width_in: int, width_out: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width_out),
        nn.ReLU(inplace=True),
    )


def separable(width_in: int, width_out: int, stride: int) -> nn.Sequential:
    """A depthwise 3x3 convolution, then a pointwise one."""
    return nn.Sequential(
        convolution(width_in, width_in, 3, stride, groups=width_in),
        convolution(width_in, width_out, 1, 1),
    )


class MobileNet(Network):
    """MobileNet v1 with a width multiplier; the maps are the ends of its four resolutions.

    Small images get a first convolution of stride 1, so that 32 px end as 2 x 2.
    """

    def __init__(self, multiplier: float, num_classes: int, channels: int = 3, small: bool = False) -> None:
        super().__init__()
        width = int(32 * multiplier)
        self.stem = convolution(channels, width, 3, stride=1 if small else 2)
        self.stages = nn.ModuleList()
        for stage in STAGES:
            layers = []
            for size, stride in stage:
                layers.append(separable(width, int(size * multiplier), stride))
                width = int(size * multiplier)
            self.stages.append(nn.Sequential(*layers))
        self.classifier = nn.Linear(width, num_classes)
        initialise(self)

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Ends of the four resolutions, and the pooled last one."""
        maps = []
        current = self.stem(images)
        for stage in self.stages:
            current = stage(current)
            maps.append(current)
        return tuple(maps), pooled(current)
