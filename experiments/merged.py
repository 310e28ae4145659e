"""Several networks of one architecture as a single wide one.

The convolutions of small networks are too narrow for a GPU: sixteen channels take a quarter of the time side by side,
as groups of one convolution, that they take one after another. Batch norms, activations and pooling work channel by
channel and need nothing but more channels. So S networks that see the same images become one network of S times the
channels, whose weights are theirs, concatenated. `narrow` has the groups that cuDNN has no kernel for.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput
from preceptor.models.network import Network

BY_CHANNEL = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.Identity)


def can_merge(network: nn.Module) -> bool:
    """Whether all layers but the classifier are among those that work on groups of channels."""
    if not isinstance(network, Network):
        return False
    layers = [m for m in network.modules() if not list(m.children()) and m is not network.classifier]
    return all(isinstance(m, BY_CHANNEL) for m in layers)


class Merged(nn.Module):
    """S networks of one architecture that see the same images.

    Args:
        networks: All of the same form; their weights are copied, and `write_back` copies them back.
        images: A batch for a dry pass, which shows the convolutions that see the images themselves.
    """

    def __init__(self, networks: Sequence[Network], images: Tensor) -> None:
        super().__init__()
        self.count = len(networks)
        self.body = copy.deepcopy(networks[0])
        heads = [network.classifier for network in networks]
        self.weight = nn.Parameter(torch.stack([head.weight.detach() for head in heads]))  # (S, C, d)
        self.bias = nn.Parameter(torch.stack([head.bias.detach() for head in heads])[:, None])  # (S, 1, C)
        del self.body.classifier
        first = _first_convolutions(networks[0], images)
        for name, layer in list(self.body.named_modules()):
            same = [network.get_submodule(name) for network in networks]
            if isinstance(layer, nn.Conv2d):
                _put(self.body, name, _wide_convolution(same, shared=name in first))
            elif isinstance(layer, nn.BatchNorm2d):
                _put(self.body, name, _wide_norm(same))

    def outputs(self, images: Tensor) -> ModelOutput:
        """Maps (B, S c, h, w), features (B, S, d) and logits (S, B, C) of one pass."""
        maps, features = self.body.trunk(images)
        features = features.to(self.weight.dtype).unflatten(1, (self.count, -1))
        with torch.autocast(images.device.type, enabled=False):
            logits = torch.baddbmm(self.bias, features.transpose(0, 1), self.weight.transpose(1, 2))
        return ModelOutput(maps, features, logits)

    def part(self, output: ModelOutput, place: int) -> ModelOutput:
        """What one of the networks says."""
        maps = tuple(m.unflatten(1, (self.count, -1))[:, place] for m in output.maps)
        return ModelOutput(maps, output.features[:, place], output.logits[place])

    @torch.no_grad()
    def write_back(self, networks: Sequence[Network]) -> None:
        """Give the networks the weights that they have here."""
        for place, network in enumerate(networks):
            network.classifier.weight.copy_(self.weight[place])
            network.classifier.bias.copy_(self.bias[place, 0])
            own = {n: t for n, t in network.state_dict().items() if not n.startswith("classifier.")}
            for name, wide in self.body.state_dict().items():
                own[name].copy_(wide.chunk(self.count)[place] if wide.ndim else wide)


def _first_convolutions(network: Network, images: Tensor) -> set[str]:
    """Names of the convolutions whose input is the images: all networks share it."""
    found = set()

    def note(name: str) -> Any:
        return lambda _, inputs: found.add(name) if inputs[0] is images else None

    hooks = [
        m.register_forward_pre_hook(note(n)) for n, m in network.named_modules() if isinstance(m, nn.Conv2d)
    ]
    training = network.training
    with torch.no_grad():
        network.eval().trunk(images)
    network.train(training)
    for hook in hooks:
        hook.remove()
    return found


def _wide_convolution(layers: Sequence[nn.Conv2d], shared: bool) -> nn.Module:
    one, count = layers[0], len(layers)
    uneven = one.stride != (1, 1) or one.in_channels != one.out_channels
    if not shared and uneven and _runs_triton(one.weight.device):
        from experiments.narrow import Narrow, takes

        if takes(one):
            return Narrow(layers)
    channels, groups = (
        (one.in_channels, one.groups) if shared else (count * one.in_channels, count * one.groups)
    )
    if shared and groups > 1:
        raise ValueError("a first convolution in groups cannot be merged")
    wide = nn.Conv2d(
        channels, count * one.out_channels, one.kernel_size, one.stride, one.padding, one.dilation, groups,
        bias=one.bias is not None, device=one.weight.device, dtype=one.weight.dtype,
    )  # fmt: skip
    return _filled(wide, layers)


def _runs_triton(device: torch.device) -> bool:
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


def _wide_norm(layers: Sequence[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    one = layers[0]
    size = len(layers) * one.num_features
    return _filled(
        nn.BatchNorm2d(size, one.eps, one.momentum, device=one.weight.device, dtype=one.weight.dtype), layers
    )


def _filled(wide: Any, layers: Sequence[nn.Module]) -> Any:
    """The wide layer with the weights of the narrow ones behind each other."""
    narrow = [layer.state_dict() for layer in layers]
    whole = {n: torch.cat([s[n] for s in narrow]) if t.ndim else t for n, t in narrow[0].items()}
    wide.load_state_dict(whole)
    return wide.to(memory_format=torch.channels_last)


def _put(module: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, layer)
