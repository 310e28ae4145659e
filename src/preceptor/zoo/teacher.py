"""A teacher: one interface over whatever a classifier came from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Self

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.zoo.card import (
    CHECK_FILE,
    WEIGHTS_FILE,
    Card,
    FileRecord,
    Preprocessing,
    Source,
    check_classes,
)
from preceptor.zoo.network import TorchNetwork
from preceptor.zoo.probe import probe_inputs, probe_outputs
from preceptor.zoo.users_code import code_of
from preceptor.zoo.weights import network_tensors, to_safetensors


class Teacher(nn.Module):
    """A trained classifier that is only read: always in eval mode, never with gradients.

    Attributes:
        card: Everything known about it.
        preprocessing: How to turn images into its inputs.
        classes: Its class names, in the order of its logits.
        centers: ``(C_T, d)`` one centre for each class; ``card.centers_source`` says where they come from.
    """

    centers: Tensor

    def __init__(self, network: Any, card: Card, centers: Tensor | None = None) -> None:
        """Put a network and its card together; refuses numbers that do not fit each other.

        Args:
            network: A `TorchNetwork` or an `OnnxNetwork`.
            card: Its card.
            centers: ``(C_T, d)``, needed unless the card says that classifier rows stand for centres.
        """
        super().__init__()
        self.network = network
        self.card = card
        weight = network.weight
        expected = (len(card.classes), card.feature_size)
        if tuple(weight.shape) != expected:
            raise PreceptorError(
                f"the card of {card.name!r} says {expected[0]} classes and {expected[1]} features, "
                f"its weights have {weight.shape[0]} and {weight.shape[1]}; remove the teacher and "
                "add it again"
            )
        if (centers is None) != (card.centers_source == "classifier"):
            raise PreceptorError(
                f"the card of {card.name!r} and its centres disagree on whether there are any"
            )
        if centers is None:
            centers = nn.functional.normalize(weight, dim=1)  # Eq. (8): rows of W on the unit sphere
        if tuple(centers.shape) != expected or not centers.isfinite().all():
            raise PreceptorError(
                f"the centres of {card.name!r} have shape {tuple(centers.shape)} or are not finite; "
                f"expected one of {expected[1]} numbers for each of {expected[0]} classes"
            )
        self.register_buffer("centers", centers.float(), persistent=False)
        self.requires_grad_(False).eval()

    @classmethod
    def from_module(
        cls, module: nn.Module, *, name: str, classes: Sequence[str], preprocessing: Preprocessing
    ) -> Self:
        """A teacher out of a network at hand, in no zoo; its head is found and proved as when adding."""
        network = TorchNetwork.discover(module, probe_inputs(preprocessing.input_size))
        files = {
            WEIGHTS_FILE: to_safetensors(network_tensors(module)),
            CHECK_FILE: to_safetensors(probe_outputs(network, preprocessing.input_size)),
        }
        card = Card(
            name=name,
            classes=check_classes(tuple(classes)),
            feature_size=network.weight.shape[1],
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            preprocessing=preprocessing,
            source=Source(kind="module", reference=type(module).__name__),
            head=network.record,
            files={file: FileRecord.of(data) for file, data in files.items()},
            centers_source="classifier",
            created=datetime.now(UTC),
        )
        return cls(network, card)

    def train(self, mode: bool = True) -> Self:
        """A teacher stays in eval mode, whatever the module around it is put into."""
        return super().train(False)

    @torch.no_grad()
    def outputs(self, inputs: Tensor, maps: bool = True) -> ModelOutput:
        """Maps, features and logits of normalised `inputs` (see `preprocessing.apply`)."""
        with code_of(self.card.source):
            return self.network(inputs, maps=maps)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(B, C_T)`` of normalised `inputs`."""
        return self.outputs(inputs, maps=False).logits

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits ``(B, C_T)`` of normalised `inputs`."""
        return self.outputs(inputs, maps=False).logits

    def features(self, inputs: Tensor) -> Tensor:
        """Features ``(B, d)`` of normalised `inputs`."""
        return self.outputs(inputs, maps=False).features

    @property
    def classifier(self) -> Tensor:
        """The rows of the last linear layer, ``(C_T, d)``."""
        return self.network.weight

    @property
    def bias(self) -> Tensor | None:
        """The bias of the last linear layer, ``(C_T,)``."""
        return self.network.bias

    @property
    def name(self) -> str:
        """Its name in the zoo."""
        return self.card.name

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class names, in the order of its logits."""
        return self.card.classes

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become its inputs."""
        return self.card.preprocessing

    @property
    def runs_on(self) -> str:
        """``torch`` or ``onnx``."""
        return self.network.runs_on
