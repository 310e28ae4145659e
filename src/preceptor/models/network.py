"""What every network of ours can do: feature maps, features and logits out of one forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput


class Network(nn.Module):
    """A classifier whose logits are a linear function of its features.

    A subclass sets `classifier` and implements `trunk`. The input is a normalised float tensor. Features and logits
    have the precision of the classifier's weights, under autocast too: losses take differences and logarithms of
    them, to which the eight bits of bfloat16 would be noise, and the last layer is too small to be worth halving.

    Attributes:
        arch: The name that `preceptor.models.build` takes to make this network.
        classifier: The last linear layer.
    """

    arch: str = ""
    classifier: nn.Linear

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Feature maps from shallow to deep, each (B, c, h, w), and features (B, d)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C)."""
        return self._classified(self.trunk(images)[1])[1]

    def outputs(self, images: Tensor) -> ModelOutput:
        """Feature maps, features and logits of one pass."""
        maps, features = self.trunk(images)
        features, logits = self._classified(features)
        return ModelOutput(maps=maps, features=features, logits=logits)

    def _classified(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, d) in the weights' precision, and their logits (B, C) computed in it."""
        features = features.to(self.classifier.weight.dtype)
        with without_autocast(features):
            return features, self.classifier(features)

    @property
    def feature_size(self) -> int:
        """The length d of a feature vector."""
        return self.classifier.in_features


def without_autocast(values: Tensor) -> AbstractContextManager[object]:
    """Autocast switched off on the values' device, where it is on."""
    kind = values.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def initialise(network: nn.Module) -> None:
    """He's normal initialisation for convolutions, unit batch norms, 1/sqrt(d) for linear layers."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = (
                module.in_features**-0.5
            )  # the gain of a linear output, as in the public WRN and ResNet code
            nn.init.uniform_(module.weight, -bound, bound)
            nn.init.zeros_(module.bias)


def pooled(images: Tensor) -> Tensor:
    """Global average over space: (B, c, h, w) -> (B, c), in float32 where the images are in half precision."""
    half = images.dtype in (torch.float16, torch.bfloat16)
    return torch.mean(images, dim=(2, 3), dtype=torch.float32 if half else None)
