"""Fine-tuning: a network that starts from a teacher's weights instead of from random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.distill.inputs import InputSpec
from preceptor.distill.teacher_side import GivenTeacher


def seen_by(given: GivenTeacher, spec: InputSpec) -> InputSpec:
    """The student's input with the teacher's mean and deviation: its first layers were trained on such numbers."""
    own = given.preprocessing
    if own is None or not own.mean or not own.std:
        return spec
    if (len(own.input_size), own.input_size[0]) != (len(spec.shape), spec.shape[0]):
        raise PreceptorError(
            f"{_name(given)} was trained on {_inputs(own.input_size)} and these are {_inputs(spec.shape)}; "
            "start from a teacher for such inputs"
        )
    return replace(spec, mean=own.mean, std=own.std)


@torch.no_grad()
def start_from(network: nn.Module, classes: tuple[str, ...], given: GivenTeacher) -> None:
    """Copy the teacher's weights; those of the classifier only where both have the same classes in one order.

    Args:
        network: The student, of the architecture that the teacher was trained with.
        classes: Its classes.
        given: The teacher.
    """
    known = _weights(given)
    own = network.state_dict()
    head = {name for name in own if name.rpartition(".")[0] == _head(network, own)}
    wanted = own.keys() - (set() if given.classes == classes else head)
    lacking = sorted(name for name in wanted if name not in known or known[name].shape != own[name].shape)
    if lacking:
        raise PreceptorError(
            f"{getattr(network, 'arch', type(network).__name__)} cannot start from {_name(given)}, which has no "
            f"{lacking[0]} of its shape; give the architecture that this teacher was trained with{_size_hint(given)}"
        )
    network.load_state_dict({name: known[name] if name in wanted else own[name] for name in own})


def _inputs(shape: Sequence[int]) -> str:
    return f"images of {shape[0]} channels" if len(shape) == 3 else f"vectors of {shape[0]} numbers"


def _size_hint(given: GivenTeacher) -> str:
    """Some architectures have weights for each place of an image, and fit images of one size only."""
    size = () if given.preprocessing is None else given.preprocessing.input_size
    if len(size) != 3:
        return ""
    return f" and, where that is the same, its image size: image_size={size[-1]} (--image-size {size[-1]})"


def _weights(given: GivenTeacher) -> dict[str, torch.Tensor]:
    """Those of the network itself, by the names that it gives them."""
    module = getattr(
        given.module, "network", given.module
    )  # a zoo's teacher holds what lays the network open, …
    if getattr(module, "runs_on", "torch") != "torch":
        raise PreceptorError(
            f"{_name(given)} is an ONNX graph, whose weights cannot be trained here; start from another teacher"
        )
    inner = getattr(module, "network", module)  # … and that holds the network
    return {name: value.detach().cpu() for name, value in inner.state_dict().items()}


def _head(network: nn.Module, state: dict[str, torch.Tensor]) -> str:
    """What the state calls the classifier; timm's networks keep timm's names there."""
    classifier = getattr(network, "classifier", None)
    if not isinstance(classifier, nn.Linear):
        raise PreceptorError(f"{type(network).__name__} has no linear `classifier` to be trained anew")
    place = classifier.weight.data_ptr()
    return next(name for name, value in state.items() if value.data_ptr() == place).rpartition(".")[0]


def _name(given: GivenTeacher) -> str:
    return given.place or type(given.module).__name__
