"""Optimisers by name, the learning rate as a number on the device, and the moving average of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from preceptor.distill.recipe import Recipe


def make_optimizer(
    recipe: Recipe, parameters: Iterable[nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """The recipe's optimiser; on CUDA fused, with the rate in a tensor, so that a graph can hold it."""
    on_cuda = device.type == "cuda"
    # Fabric's loss scaler cannot clip gradients that the fused optimiser unscales by itself.
    fused = on_cuda and not (recipe.clip and recipe.precision == "16-mixed")
    rate: Any = torch.tensor(recipe.lr, device=device) if fused else recipe.lr
    flags: dict[str, Any] = {"fused": True} if fused else {}
    chosen = [parameter for parameter in parameters if parameter.requires_grad]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(chosen, lr=rate, weight_decay=recipe.weight_decay, **flags)
    return torch.optim.SGD(
        chosen,
        lr=rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov and recipe.momentum > 0,
        weight_decay=recipe.weight_decay,
        **flags,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate; a tensor is filled in place, without waiting for the device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class MovingAverage:
    """An exponential moving average of a network's weights and statistics."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.average = {name: value.detach().clone() for name, value in network.state_dict().items()}
        floating = [name for name, value in self.average.items() if value.is_floating_point()]
        live = network.state_dict()
        self._average = [self.average[name] for name in floating]
        self._live = [live[name].detach() for name in floating]  # these share memory with the network

    @torch.no_grad()
    def update(self) -> None:
        """One step of the average; counters and other integers stay as they were."""
        torch._foreach_lerp_(self._average, self._live, 1 - self.decay)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Put back a saved average, in place."""
        for name, value in tensors.items():
            self.average[name].copy_(value)


@contextmanager
def weights_of(network: nn.Module, state: dict[str, Tensor] | None) -> Iterator[None]:
    """The network with other weights for a while; with None its own."""
    if state is None:
        yield
        return
    own = {name: value.detach().clone() for name, value in network.state_dict().items()}
    network.load_state_dict(state)
    try:
        yield
    finally:
        network.load_state_dict(own)
