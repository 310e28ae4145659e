"""Finding the last linear layer of any classifier, and proving that it is the one.

Features are the input of the layer that produced the logits. The layer is found by hooks on a dry pass and
believed only after two checks: ``features @ W.T + b`` equals the logits, and numbers put in place of the
layer's output come out of the network unchanged, so that nothing (a ReLU, a scale, a second head) sits behind
it that merely did not show on the inputs tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.zoo.card import Reduction

TOLERANCE = 1e-4  # of the largest logit, in float32


@dataclass(frozen=True)
class Head:
    """The layer that gives the logits. ``reduction(input) @ weight.T + bias`` equals them."""

    path: str
    reduction: Reduction
    weight: Tensor  # (C, d)
    bias: Tensor | None  # (C,)
    linearised: bool = (
        False  # what came after the layer is left out, so its output, not the network's, counts
    )


@dataclass(frozen=True)
class _Call:
    path: str
    layer: nn.Module
    inputs: Tensor
    outputs: Tensor


def is_linear(layer: nn.Module) -> bool:
    """Whether a layer maps features to outputs by one matrix: nn.Linear or a plain 1x1 convolution."""
    if isinstance(layer, nn.Conv2d):
        return layer.kernel_size == (1, 1) and layer.groups == 1 and set(layer.padding) == {0}
    return isinstance(layer, nn.Linear)


def positions(layer: nn.Module, values: Tensor) -> Tensor:
    """A layer's input or output as ``(B, P, d)``: one row for each token or pixel it is applied to."""
    if isinstance(layer, nn.Conv2d):
        return values.flatten(2).transpose(1, 2)
    return values.reshape(values.shape[0], -1, values.shape[-1])


def reduce_positions(values: Tensor, reduction: Reduction) -> Tensor:
    """One row for each sample, ``(B, d)`` out of ``(B, P, d)``."""
    if reduction == "mean":
        return values.mean(1)
    return values[:, -1 if reduction == "last" else 0]


def logits_of(output: Any) -> Tensor:
    """The logits ``(B, C)`` out of whatever a network returned; refuses what cannot be one classifier's."""
    named = isinstance(output, dict) and "logits" in output
    logits = output["logits"] if named else getattr(output, "logits", output)
    if isinstance(logits, tuple | list | dict):
        raise PreceptorError(
            f"the network returns a {type(logits).__name__} of {len(logits)} outputs, not one tensor of logits; "
            "wrap it so that it returns one of them, or name it 'logits'"
        )
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise PreceptorError(
            f"the network returns {shape}; a classifier returns logits of shape (batch, classes)"
        )
    return logits


def find_head(network: nn.Module, inputs: Tensor, linear_head: bool = False) -> Head:
    """Find and prove the layer that gives `network` its logits, or raise with the reason why there is none.

    Args:
        network: Any classifier; it is put into eval mode.
        inputs: A few normalised inputs for the dry passes, at least two.
        linear_head: Leave out what comes after the only layer that could be the head (SqueezeNet's ReLU, a
            softmax): the mean of the layer's own output counts as the logits.
    """
    network.eval()
    with torch.no_grad():
        logits = logits_of(network(inputs))
        _check_behaviour(network, inputs, logits)
        calls = _record(network, inputs, num_classes=logits.shape[1])
        reasons = []
        for call in reversed(calls):
            found = _prove(network, inputs, call, logits)
            if isinstance(found, Head):
                return found
            reasons.append(found)
        if linear_head and len({call.path for call in calls}) == 1 and _is_affine(calls[-1]):
            reduction: Reduction = "none" if calls[-1].inputs.ndim == 2 else "mean"
            return Head(calls[-1].path, reduction, *head_weights(calls[-1].layer), linearised=True)
    raise PreceptorError(_refusal(calls, reasons, logits.shape[1]))


def head_weights(layer: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weights ``(C, d)`` and bias as the last forward pass used them (weight norm applied)."""
    weight: Tensor = layer.weight.detach().flatten(1)  # type: ignore[operator]
    bias = layer.bias
    return weight.clone(), bias.detach().clone() if isinstance(bias, Tensor) else None


def _is_affine(call: _Call) -> bool:
    """Whether the layer's output is its input times its weights plus its bias."""
    weight, bias = head_weights(call.layer)
    again = positions(call.layer, call.inputs) @ weight.T + (0 if bias is None else bias)
    return _close(again, positions(call.layer, call.outputs))


def _close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    scale = b.abs().max().item()
    return a.shape == b.shape and (a - b).abs().max().item() <= tolerance * scale + 1e-6


def _check_behaviour(network: nn.Module, inputs: Tensor, logits: Tensor) -> None:
    if not logits.isfinite().all():
        raise PreceptorError("the network's outputs are not finite; its weights are broken")
    if not _close(logits_of(network(inputs)), logits):
        raise PreceptorError(
            "the network gives other outputs for the same inputs, although in eval mode: "
            "dropout or noise is always on in it; switch it off"
        )
    if not _close(logits_of(network(inputs[:1])), logits[:1], 10 * TOLERANCE):
        raise PreceptorError(
            "the network's outputs for an image depend on the others in the batch, although in eval mode: "
            "a batch normalisation stays in train mode in it; switch that off"
        )


def _record(network: nn.Module, inputs: Tensor, num_classes: int) -> list[_Call]:
    """The calls of layers with as many outputs as there are classes, in the order of execution."""
    calls: list[_Call] = []

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def record(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
                calls.append(_Call(path, layer, args[0].clone(), output.clone()))

        return record

    layers = [(path, layer) for path, layer in network.named_modules() if is_linear(layer)]
    handles = [
        layer.register_forward_hook(hook(path))
        for path, layer in layers
        if getattr(layer, "out_features", getattr(layer, "out_channels", None)) == num_classes
    ]
    try:
        network(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _prove(network: nn.Module, inputs: Tensor, call: _Call, logits: Tensor) -> Head | str:
    """The head, if `call` is it; otherwise why not."""
    if not _is_affine(call):
        return f"layer {call.path!r} is no features @ W.T + b (a cosine, normalised or adapted head)"
    weight, bias = head_weights(call.layer)
    outputs = positions(call.layer, call.outputs)  # (B, P, C)
    options: tuple[Reduction, ...] = ("none",) if call.inputs.ndim == 2 else ("mean", "first", "last")
    for reduction in options:
        if _close(reduce_positions(outputs, reduction), logits) and _passes_unchanged(
            network, inputs, call, reduction
        ):
            return Head(call.path, reduction, weight, bias)
    where = "" if options == ("none",) else f", applied to {outputs.shape[1]} positions,"
    return (
        f"the output of layer {call.path!r}{where} is not the network's output: something that is "
        "neither a mean "
        "over positions nor the choice of the first or last one comes after it (a ReLU, a scale, a softmax); "
        "--linear-head leaves that out, and the card will say so"
    )


def _passes_unchanged(network: nn.Module, inputs: Tensor, call: _Call, reduction: Reduction) -> bool:
    """Whether numbers of either sign, small and large, put in place of the layer's output, come out."""
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 100.0):
        planted = torch.randn(call.outputs.shape, generator=generator).to(call.outputs) * scale
        handle = call.layer.register_forward_hook(lambda *_, planted=planted: planted)
        try:
            output = logits_of(network(inputs))
        finally:
            handle.remove()
        if not _close(output, reduce_positions(positions(call.layer, planted), reduction)):
            return False
    return True


def _refusal(calls: list[_Call], reasons: list[str], num_classes: int) -> str:
    names = list(dict.fromkeys(call.path for call in calls))
    if not names:
        return (
            f"no linear layer gives the network's {num_classes} outputs: its head is neither an "
            "nn.Linear nor a "
            "1x1 convolution (a cosine or hand-written head), so it has no classifier weights to "
            "compare classes by"
        )
    if len(names) > 1:
        return (
            f"several layers give {num_classes} outputs ({', '.join(names)}) and none of them alone is the "
            f"network's output; the last one: {reasons[0]}"
        )
    return reasons[0]
