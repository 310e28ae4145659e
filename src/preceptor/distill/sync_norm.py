"""Batch normalisation with the statistics of the whole global batch, on any device and backend.

Any number of processes then trains the same network as one. On CUDA it is torch's own SyncBatchNorm, which
works nowhere else; elsewhere it is the class below.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from preceptor.distill.collectives import sum_over_ranks


class SynchronisedBatchNorm(_BatchNorm):
    """A batch norm over the rows of all processes; each has as many rows."""

    def _check_input_dim(self, input: Tensor) -> None:  # torch's name
        if input.ndim < 2:
            raise ValueError(f"expected at least 2 dimensions, got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise with the global batch's mean and variance, or the running ones in eval mode."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        values = input.float()
        axes = [axis for axis in range(values.ndim) if axis != 1]
        shape = (1, -1) + (1,) * (values.ndim - 2)
        count = values.numel() // values.shape[1] * dist.get_world_size()
        mean = sum_over_ranks(values.sum(axes)) / count  # (c,)
        centered = values - mean.view(shape)
        variance = sum_over_ranks(centered.square().sum(axes)) / count  # (c,)
        self._track(mean.detach(), variance.detach() * (count / max(count - 1, 1)))
        scaled = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(unbiased, momentum)


_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Synchronised:
    """What `synchronise` changed in a network, and what it could not."""

    replaced: list[tuple[nn.Module, str, _BatchNorm]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # batch norms of classes that do more than normalise

    def undo(self) -> None:
        """Put the plain batch norms back; they share parameters and statistics with the synchronised ones."""
        for module, name, original in self.replaced:
            original.train(getattr(module, name).training)
            setattr(module, name, original)


def synchronise(network: nn.Module, device: torch.device) -> Synchronised:
    """Put a synchronised batch norm in the place of every plain one inside `network`."""
    changes = Synchronised()
    kind = nn.SyncBatchNorm if device.type == "cuda" else SynchronisedBatchNorm
    for place, module in list(network.named_modules()):
        for name, child in list(module.named_children()):
            if type(child) in _PLAIN:
                assert isinstance(child, _BatchNorm)
                setattr(module, name, _sharing(kind, child))
                changes.replaced.append((module, name, child))
            elif isinstance(child, _BatchNorm):
                changes.left.append(f"{place}.{name}".lstrip("."))
    return changes


def _sharing(kind: type[_BatchNorm], original: _BatchNorm) -> _BatchNorm:
    flags = (original.affine, original.track_running_stats)
    twin = kind(original.num_features, original.eps, original.momentum, *flags)
    twin.weight, twin.bias = original.weight, original.bias
    twin.running_mean, twin.running_var = original.running_mean, original.running_var
    twin.num_batches_tracked = original.num_batches_tracked
    return twin.train(original.training)
