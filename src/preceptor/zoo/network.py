"""A torch classifier with its features, feature maps and classifier weights laid open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.models import Network
from preceptor.zoo.card import HeadRecord
from preceptor.zoo.head import find_head, head_weights, is_linear, logits_of, positions, reduce_positions

MAX_MAPS = 6
NATIVE_MAPS = ("outputs()",)  # our own models name their maps themselves


class TorchNetwork(nn.Module):
    """Any classifier in eval mode whose head is known."""

    runs_on = "torch"
    weight: Tensor
    bias: Tensor | None

    def __init__(self, network: nn.Module, record: HeadRecord, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.network = network
        self.record = record
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self.requires_grad_(False).eval()

    @classmethod
    def discover(cls, network: nn.Module, inputs: Tensor, linear_head: bool = False) -> Self:
        """Find head and maps by dry passes over a few `inputs`; raises where the head cannot be proved."""
        network = network.float()
        head = find_head(network, inputs, linear_head)
        maps = find_maps(network, inputs, head.path)
        record = HeadRecord(path=head.path, reduction=head.reduction, linearised=head.linearised, maps=maps)
        return cls(network, record, head.weight, head.bias)

    @classmethod
    def rebuild(cls, network: nn.Module, record: HeadRecord, inputs: Tensor) -> Self:
        """Take the head that a card names, after one dry pass has shown that it still gives the logits."""
        network = network.float().eval()
        layers = dict(network.named_modules())
        missing = [p for p in (record.path, *record.maps) if p not in layers and (p,) != NATIVE_MAPS]
        if missing or not is_linear(layers[record.path]):
            raise PreceptorError(
                f"the card names layer {(missing or [record.path])[0]!r}, which the network lacks or "
                "which is not "
                "linear: what builds it has changed; restore that, or remove the teacher and add it again"
            )
        with torch.no_grad():
            network(inputs)  # weight norm of the older kind sets its weights in a forward pass only
            built = cls(network, record, *head_weights(layers[record.path]))
            output = built(inputs)
        again = built.linear(output.features)
        if not (again - output.logits).abs().max() <= 1e-3 * output.logits.abs().max() + 1e-6:
            raise PreceptorError(
                f"features @ W.T + b of layer {record.path!r} no longer equals the network's logits: "
                "what builds it has changed; restore that, or remove the teacher and add it again"
            )
        return built

    def forward(self, inputs: Tensor, maps: bool = True) -> ModelOutput:
        """Maps (unless not wanted), features and logits of normalised `inputs`."""
        caught: dict[str, Tensor] = {}
        native = maps and self.record.maps == NATIVE_MAPS
        hooked = () if native or not maps else self.record.maps
        layers = dict(self.network.named_modules())
        head = layers[self.record.path]
        handles = [head.register_forward_pre_hook(_catch_input(caught))]
        handles += [layers[path].register_forward_hook(_catch_output(caught, path)) for path in hooked]
        try:
            output = self.network.outputs(inputs) if native else self.network(inputs)  # type: ignore[operator]
        finally:
            for handle in handles:
                handle.remove()
        features = reduce_positions(positions(head, caught.pop("")), self.record.reduction)
        found = output.maps if native else tuple(caught[path] for path in hooked)
        logits = self.linear(features) if self.record.linearised else logits_of(output)
        return ModelOutput(maps=found, features=features, logits=logits)

    def linear(self, features: Tensor) -> Tensor:
        """``features @ W.T + b``, ``(B, C)``."""
        return nn.functional.linear(features, self.weight, self.bias)


def find_maps(network: nn.Module, inputs: Tensor, head: str) -> tuple[str, ...]:
    """The modules that give the feature map of each resolution, from shallow to deep; empty for none.

    Of the modules with the same resolution the outermost counts, and of those the last. Channels-last
    networks (a linear layer or layer norm over ``(B, h, w, c)``) and transformers have none.
    """
    if isinstance(network, Network):
        return NATIVE_MAPS
    calls: list[tuple[str, tuple[int, ...]]] = []
    channels_last: list[str] = []

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def record(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not isinstance(output, Tensor) or output.ndim != 4:
                return
            if isinstance(layer, nn.Linear | nn.LayerNorm):
                channels_last.append(path)
            calls.append((path, tuple(output.shape)))

        return record

    handles = [layer.register_forward_hook(hook(path)) for path, layer in network.named_modules() if path]
    try:
        with torch.no_grad():
            network(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if channels_last:
        return ()
    paths = [path for path, _ in calls]
    chosen: dict[tuple[int, ...], str] = {}
    for path, shape in calls:
        within_head = path == head or head.startswith(path + ".")
        if within_head or paths.count(path) > 1 or not _is_map(shape, inputs):
            continue
        size = shape[2:]
        if size not in chosen or path.count(".") <= chosen[size].count("."):
            chosen[size] = path
    ordered = sorted(chosen.values(), key=paths.index)[-MAX_MAPS:]
    return tuple(ordered) if len(ordered) > 1 else ()


def _is_map(shape: tuple[int, ...], inputs: Tensor) -> bool:
    """Whether a 4-D output is a picture of the input: its batch, its aspect ratio, more than one pixel."""
    if inputs.ndim != 4 or shape[0] != len(inputs) or min(shape[2:]) < 2:
        return False
    height, width = inputs.shape[2:]
    return abs(shape[2] * width - shape[3] * height) <= max(height, width)  # rounding: one pixel either way


def _catch_input(caught: dict[str, Tensor]) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def catch(layer: nn.Module, args: tuple[Any, ...]) -> None:
        caught[""] = args[0]

    return catch


def _catch_output(caught: dict[str, Tensor], path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def catch(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        caught[path] = output

    return catch
