"""The card of a teacher: everything about it but its weights."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from preceptor.core import PreceptorError
from preceptor.zoo.limits import (
    MAX_CARD_BYTES,
    MAX_CLASS_NAME,
    MAX_CLASSES,
    MAX_FEATURES,
    MAX_FILE_BYTES,
    check_size,
)
from preceptor.zoo.preprocessing import Preprocessing, first_fault

__all__ = ["Card", "FileRecord", "HeadRecord", "Preprocessing", "Probe", "Source", "check_name", "read_card"]

CARD_FILE = "card.json"
WEIGHTS_FILE = "weights.safetensors"
ONNX_FILE = "model.onnx"
ONNX_METADATA_KEY = "preceptor"  # in an ONNX file: {"classes": […], "preprocessing": {…}} as JSON
CENTERS_FILE = "centers.safetensors"
CHECK_FILE = "check.safetensors"
INDEX_FILE = "index.jsonl"

CentersSource = Literal["stored", "data", "classifier"]
Reduction = Literal["none", "mean", "first", "last"]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,126}[A-Za-z0-9_+-])?\Z")


def check_name(name: str) -> str:
    """Return `name` if it can be a teacher's; it becomes a folder, so it must not lead out of the zoo."""
    if not _NAME.match(name) or ".." in name or name == INDEX_FILE:
        raise PreceptorError(
            f"{name!r} cannot be a teacher's name: use up to 128 of a-z, A-Z, 0-9, '.', '_', '+' and '-', "
            "beginning with a letter or a digit, without '..' and without '.' at the end"
        )
    return name


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRecord(_Record):
    """A file beside the card, and what its bytes must hash to."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The record of a file with this content."""
        return cls(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


class Source(_Record):
    """Where the teacher came from and what is needed to build it again."""

    kind: Literal["timm", "torchvision", "hf", "onnx", "run", "python", "module"]
    reference: str  # what was asked for, less its kind: a model name, a file name, module:factory
    options: dict[str, Any] = Field(default_factory=dict)  # for the builder of this kind


class HeadRecord(_Record):
    """Which layer gives the logits, and how its input becomes one feature vector an image."""

    path: str  # the module's name inside the network, or the tensor's name inside an ONNX graph
    reduction: Reduction = "none"  # of the positions (tokens, pixels) that the layer is applied to
    linearised: bool = False  # on demand: what came after the layer (a ReLU, a softmax) is left out
    maps: tuple[str, ...] = ()  # modules whose outputs are the feature maps, from shallow to deep


class Probe(_Record):
    """How to repeat the forward pass whose outputs lie in ``check.safetensors``."""

    seed: int = 0
    rows: Annotated[int, Field(ge=1, le=64)] = 4
    tolerance: Annotated[float, Field(gt=0, le=0.1)] = 2e-3  # of the largest recorded value


class Card(_Record):
    """A teacher's card. Frozen: a teacher that changes is another teacher."""

    schema_version: Literal[1] = 1
    name: str
    classes: tuple[str, ...]
    feature_size: Annotated[int, Field(ge=1, le=MAX_FEATURES)]
    parameters: Annotated[int, Field(ge=0)]
    preprocessing: Preprocessing
    source: Source
    head: HeadRecord
    files: dict[str, FileRecord]
    centers_source: CentersSource
    trained: bool = True  # False where random weights were asked for
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None  # on its own test set
    licence: str | None = None
    probe: Probe = Probe()
    created: datetime
    versions: dict[str, str] = Field(default_factory=dict)  # of the libraries that added it

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return check_name(name)

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        return check_classes(classes)

    @field_validator("files")
    @classmethod
    def _check_files(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for name in files:
            if name != check_name(name) or name == CARD_FILE:
                raise ValueError(f"{name!r} cannot be a teacher's file")
        return files

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        needed = {CHECK_FILE, self.weights_file} | (
            {CENTERS_FILE} if self.centers_source != "classifier" else set()
        )
        missing = sorted(needed - self.files.keys())
        if missing:
            raise ValueError(f"the card of {self.name!r} names no {' and no '.join(missing)}")
        return self

    @property
    def weights_file(self) -> str:
        """The file that holds the weights."""
        return ONNX_FILE if self.source.kind == "onnx" else WEIGHTS_FILE

    @property
    def weights_hash(self) -> str:
        """The sha256 of the weights; the same weights in another network are another teacher."""
        return self.files[self.weights_file].sha256

    @property
    def check_hash(self) -> str:
        """The sha256 of the recorded outputs: what the network computed from its weights when it was added."""
        return self.files[CHECK_FILE].sha256

    @property
    def runs_code(self) -> bool:
        """Whether loading it runs code of the user's, which may have changed since it was added."""
        return self.source.kind == "python"


def check_classes(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return `classes` if they can be a classifier's: two or more, not too many, none empty, all different."""
    if len(classes) == 1:  # its softmax is 1, whatever it is shown
        raise PreceptorError(
            "1 class came; a teacher tells 2 or more apart by an output for each, so a single output, as of a "
            "regression, cannot be one"
        )
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise PreceptorError(f"{len(classes):,} classes came; a teacher has 2 to {MAX_CLASSES:,}")
    bad = [name for name in classes if not name.strip() or len(name) > MAX_CLASS_NAME]
    if bad:
        raise PreceptorError(
            f"class name {bad[0][:40]!r} is empty or longer than {MAX_CLASS_NAME} characters"
        )
    if len(set(classes)) < len(classes):
        seen: set[str] = set()
        twice = next(name for name in classes if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise PreceptorError(f"class name {twice!r} comes twice; every class needs a name of its own")
    return classes


def read_card(text: bytes | str, name: str) -> Card:
    """Parse the card of the teacher `name`, or say in one sentence what is wrong with it."""
    check_size(f"the card of {name!r}", len(text), MAX_CARD_BYTES)
    try:
        card = Card.model_validate_json(text)
    except ValidationError as error:
        raise PreceptorError(
            f"the card of {name!r} is not valid{first_fault(error)}; remove the teacher and add it again"
        ) from error
    if card.name != name:
        raise PreceptorError(
            f"the card in folder {name!r} is for {card.name!r}; a teacher's folder bears its name"
        )
    return card
