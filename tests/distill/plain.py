"""A network whose training can be written out by hand, and the comparison of two trained ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput


class Plain(nn.Module):
    """Without batch norm, so that a batch in parts is the whole batch."""

    def __init__(self, inputs: int = 6, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(inputs, 5)
        self.classifier = nn.Linear(5, classes)

    def outputs(self, images: Tensor) -> ModelOutput:
        features = self.hidden(images.flatten(1)).tanh()
        return ModelOutput((), features, self.classifier(features))

    def forward(self, images: Tensor) -> Tensor:
        return self.outputs(images).logits


class Spy(Plain):
    """Keeps what it was shown."""

    def __init__(self, inputs: int = 6) -> None:
        super().__init__(inputs)
        self.seen: list[Tensor] = []

    def outputs(self, images: Tensor) -> ModelOutput:
        self.seen.append(images)
        return super().outputs(images)


def assert_same_weights(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, **tolerance)
