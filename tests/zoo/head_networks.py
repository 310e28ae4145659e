"""Networks with every kind of head, linear or not, over one small trunk."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_CLASSES = 5
INPUTS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Trunk(nn.Module):
    """(B, 3, 8, 8) -> (B, 6, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = Trunk()
        self.fc = nn.Linear(6, NUM_CLASSES)

    def pooled(self, x: Tensor) -> Tensor:
        return self.trunk(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pooled(x))


class Tokens(Net):
    """A head on tokens, then one of several reductions."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = reduction

    def tokens(self, x: Tensor) -> Tensor:
        return self.trunk(x).flatten(2).transpose(1, 2)  # (B, 16, 6)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.fc(self.tokens(x))
        if self.reduction == "mean":
            return logits.mean(1)
        if self.reduction == "max":
            return logits.amax(1)
        return logits[:, {"first": 0, "last": -1, "third": 2}[self.reduction]]


class Convolution(Net):
    def __init__(self, after: nn.Module, size: int = 1) -> None:
        super().__init__()
        del self.fc
        self.head = nn.Conv2d(6, NUM_CLASSES, size)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.head(self.trunk(x))).mean((2, 3))


class Cosine(nn.Linear):
    """Looks like a linear layer, computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))


class FunctionalCosine(Net):
    def __init__(self) -> None:
        super().__init__()
        del self.fc
        self.prototypes = nn.Parameter(torch.randn(NUM_CLASSES, 6))

    def forward(self, x: Tensor) -> Tensor:
        return 10 * F.linear(F.normalize(self.pooled(x), dim=1), F.normalize(self.prototypes, dim=1))


class TwoHeads(Net):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.other = nn.Linear(6, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor] | dict[str, Tensor]:
        features = self.pooled(x)
        first, second = self.fc(features), self.other(features.square())
        if self.mode == "dict":
            return {"a": first, "b": second}
        return {"tuple": (first, second), "mean": (first + second) / 2, "unused": first}[self.mode]


class After(Net):
    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(super().forward(x))


class AlwaysDropout(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.dropout(self.pooled(x), 0.5, training=True))


class BatchDependent(Net):
    def forward(self, x: Tensor) -> Tensor:
        features = self.pooled(x)
        return self.fc(features - features.mean(0))


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


def cosine_layer() -> nn.Module:
    net = Net()
    net.fc = Cosine(6, NUM_CLASSES, bias=False)
    return net


def positive_logits_then_relu() -> nn.Module:
    """The ReLU does not show on any ordinary input: only planted numbers tell."""
    net = After(nn.ReLU())
    net.fc.bias.data += 100
    return net


def small_logits_then_cap() -> nn.Module:
    net = After(nn.Hardtanh(-10, 10))
    net.fc.weight.data *= 0.1
    return net


def broken_weights() -> nn.Module:
    net = Net()
    net.fc.weight.data[0, 0] = torch.nan
    return net
