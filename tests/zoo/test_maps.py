"""The feature maps found in a network are the last of each resolution."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn

from preceptor.zoo.network import TorchNetwork, find_maps
from tests.zoo.head_networks import INPUTS, Net


def test_maps_are_the_last_of_each_resolution() -> None:
    network, inputs = torchvision.models.resnet18().eval(), torch.randn(2, 3, 64, 64)
    wrapped = TorchNetwork.discover(network, inputs)
    assert wrapped.record.maps == ("relu", "layer1", "layer2", "layer3", "layer4")
    maps = wrapped(inputs).maps
    assert [tuple(m.shape[1:]) for m in maps] == [
        (64, 32, 32),
        (64, 16, 16),
        (128, 8, 8),
        (256, 4, 4),
        (512, 2, 2),
    ]
    assert wrapped(inputs, maps=False).maps == ()


def test_channels_last_networks_have_no_maps() -> None:
    class ChannelsLast(Net):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.norm(self.trunk(x).permute(0, 2, 3, 1)).mean((1, 2)))

    assert find_maps(ChannelsLast().eval(), INPUTS, "fc") == ()
