"""Networks of one architecture that pass over the same images together, and passes compiled once for all packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor, nn

from experiments.merged import Merged
from experiments.pupils import looks_at_maps
from preceptor.core import ModelOutput
from preceptor.distill.losses import Method


@dataclass(eq=False)
class Choir:
    """Students that see the same images through networks of one architecture, merged into one."""

    places: list[int]  # among the students of the pack
    network: Merged | nn.Module  # merged, or the one student's own
    forward: Callable[[Tensor], ModelOutput]

    def parts(self, out: ModelOutput) -> list[ModelOutput]:
        """What each student says, cut off from the network so that each loss has its own backward pass."""
        if not isinstance(self.network, Merged):
            return [_leaves(out)]
        return [_leaves(self.network.part(out, place)) for place in range(len(self.places))]

    def backward(self, out: ModelOutput, parts: list[ModelOutput]) -> None:
        """Carry the gradients that the losses left at the parts through the network."""
        pairs = [
            (out.logits, _joined([p.logits for p in parts], 0)),
            (out.features, _joined([p.features for p in parts], 1)),
        ]
        pairs += [(m, _joined([p.maps[k] for p in parts], 1, True)) for k, m in enumerate(out.maps)]
        pairs = [(value, grad.view_as(value)) for value, grad in pairs if grad is not None]
        if pairs:
            torch.autograd.backward([value for value, _ in pairs], [grad for _, grad in pairs])


def _leaves(out: ModelOutput) -> ModelOutput:
    maps = tuple(m.detach().requires_grad_() for m in out.maps)
    return ModelOutput(maps, out.features.detach().requires_grad_(), out.logits.detach().requires_grad_())


def _joined(parts: list[Tensor], dim: int, channels: bool = False) -> Tensor | None:
    """The gradients of parts of one tensor together; None where no loss used any of them."""
    if all(part.grad is None for part in parts):
        return None
    grads = [torch.zeros_like(part) if part.grad is None else part.grad for part in parts]
    if channels:
        return torch.cat(grads, dim).contiguous(memory_format=torch.channels_last)
    return torch.stack(grads, dim)


def _outputs(network: nn.Module, images: Tensor) -> ModelOutput:
    return network.outputs(images)


def _outputs_without_maps(network: nn.Module, images: Tensor) -> ModelOutput:
    return replace(network.outputs(images), maps=())


@cache
def _compiled(outputs: Callable) -> Callable:
    """Compiled once for all packs: networks of one form differ in their weights alone, which are inputs."""
    return torch.compile(outputs, dynamic=False)


def pass_of(network: nn.Module, methods: Sequence[Method], compiled: bool) -> Callable[[Tensor], ModelOutput]:
    """A pass of the network; without its maps where no method looks at them, which spares their gradients."""
    outputs = _outputs if any(map(looks_at_maps, methods)) else _outputs_without_maps
    return partial(_compiled(outputs) if compiled else outputs, network)
