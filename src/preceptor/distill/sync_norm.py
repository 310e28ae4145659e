"""Batch normalisation with the statistics of the whole global batch, on any device and backend.

torch's SyncBatchNorm needs CUDA and counts padding rows. This one runs on gloo as well, and rows of weight 0 (the
padding at an epoch's ragged end) do not enter the statistics, so that any number of processes trains the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class RowWeights:
    """The weights of the rows that the networks see, set by the training step before each forward pass."""

    def __init__(self) -> None:
        self.values: Tensor | None = None  # (B,)

    def for_rows(self, inputs: Tensor) -> Tensor:
        """Weights shaped to multiply `inputs` (R, c, …); views that a method added repeat those of the batch."""
        if self.values is None or len(inputs) % len(self.values):
            return inputs.new_ones((len(inputs),) + (1,) * (inputs.ndim - 1))
        repeated = self.values.to(inputs.dtype).repeat(len(inputs) // len(self.values))
        return repeated.view(-1, *(1,) * (inputs.ndim - 1))


class _SumOverRanks(torch.autograd.Function):
    """The sum over all processes; every process's loss depends on it, so its gradient is summed as well."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].detach().clone()
        dist.all_reduce(total)
        return total


class SynchronisedBatchNorm(_BatchNorm):
    """`nn.BatchNorm1d` or `nn.BatchNorm2d` over the rows of all processes. Parameters and names are theirs."""

    def __init__(self, original: _BatchNorm, row_weights: RowWeights) -> None:
        super().__init__(original.num_features, original.eps, original.momentum, original.affine)
        self.weight, self.bias = original.weight, original.bias
        self.track_running_stats = original.track_running_stats
        self.running_mean, self.running_var = original.running_mean, original.running_var
        self.num_batches_tracked = original.num_batches_tracked
        self.training = original.training
        self.original = (original,)  # in a tuple, so that it is no submodule and adds no names
        self.row_weights = row_weights

    def _check_input_dim(self, inputs: Tensor) -> None:
        self.original[0]._check_input_dim(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise with the global batch's mean and variance, or the running ones in eval mode."""
        if not self.training:
            return super().forward(inputs)
        self._check_input_dim(inputs)
        values = inputs.float()
        axes = [axis for axis in range(values.ndim) if axis != 1]
        shape = (1, -1) + (1,) * (values.ndim - 2)
        weights = self.row_weights.for_rows(values)
        count = _SumOverRanks.apply((weights.sum() * (values[0, 0].numel())).reshape(1))
        mean = _SumOverRanks.apply((values * weights).sum(axes)) / count  # (c,)
        centered = values - mean.view(shape)
        variance = _SumOverRanks.apply((centered.square() * weights).sum(axes)) / count  # (c,)
        self._track(mean.detach(), variance.detach(), count.detach())
        scaled = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(inputs.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * count / (count - 1).clamp_min(1)
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(unbiased, momentum)


_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def synchronise(network: nn.Module, row_weights: RowWeights) -> list[str]:
    """Put `SynchronisedBatchNorm` in the place of every batch norm inside `network`.

    Returns:
        The names of batch norms that were left alone because their class does more than normalise.
    """
    left = []
    for place, module in list(network.named_modules()):
        for name, child in list(module.named_children()):
            if type(child) in _PLAIN:
                setattr(module, name, SynchronisedBatchNorm(child, row_weights))  # type: ignore[arg-type]
            elif isinstance(child, _BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
                left.append(f"{place}.{name}".lstrip("."))
    return left


def desynchronise(network: nn.Module) -> None:
    """Put the plain batch norms back; they share their parameters and statistics with the synchronised ones."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, SynchronisedBatchNorm):
                original = child.original[0].train(child.training)
                setattr(module, name, original)
