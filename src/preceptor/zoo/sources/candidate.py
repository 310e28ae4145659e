"""What every source takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.zoo.card import Preprocessing, check_classes


@dataclass(frozen=True)
class Request:
    """A teacher somebody asked for."""

    kind: str
    reference: str
    weights: Path | None = None
    classes: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    untrained: bool = False
    trust_code: bool = False
    linear_head: bool = False

    @property
    def text(self) -> str:
        """As the user wrote it."""
        return f"{self.kind}:{self.reference}"

    def refuse(self, *names: str) -> None:
        """Refuse options that mean nothing for this kind of source."""
        for name in names:
            if getattr(self, name):
                option = "--" + name.replace("_", "-")
                raise PreceptorError(f"{option} means nothing for {self.kind}: sources; leave it out")

    def refuse_two_weights(self) -> None:
        """Refuse a file of weights where random ones were asked for."""
        if self.untrained and self.weights is not None:
            raise PreceptorError(
                f"--untrained asks for random weights and --weights for those of {self.weights.name!r}; "
                "leave one of the two out"
            )


@dataclass(frozen=True)
class Candidate:
    """A network with its weights loaded, before its head is known."""

    network: nn.Module | bytes  # bytes of an ONNX model
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    options: dict[str, Any] = field(default_factory=dict)  # for rebuilding, kept in the card
    files: dict[str, bytes] = field(default_factory=dict)  # for rebuilding, kept beside the card
    trained: bool = True
    centers: Tensor | None = None
    accuracy: float | None = None
    licence: str | None = None


def need_classes(request: Request, known: Sequence[str] | None, why: str) -> tuple[str, ...]:
    """The class names given, or else those known; raises with `why` where there are neither."""
    classes = request.classes if request.classes is not None else known
    if classes is None:
        raise PreceptorError(
            f"{why}: give the class names in the order of the outputs (--classes a,b,c, a file with "
            "one name a "
            "line, or imagenet-1k)"
        )
    return check_classes(tuple(classes))


def offline(what: str, error: Exception) -> PreceptorError:
    """One sentence for a download that failed."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
    return PreceptorError(
        f"{what} could not be fetched ({line}): is there a network, and does it exist? "
        "Otherwise fetch the weights elsewhere and give --weights FILE"
    )
