"""Teachers trained here: a run folder with ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from preceptor.core import PreceptorError
from preceptor.files import local_path
from preceptor.models import build
from preceptor.zoo.card import Card, Preprocessing
from preceptor.zoo.limits import MAX_CARD_BYTES, check_size
from preceptor.zoo.preprocessing import first_fault
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes
from preceptor.zoo.weights import load_strictly, read_state_dict


def fetch(request: Request) -> Candidate:
    """Rebuild the run's model from its configuration and load its weights."""
    request.refuse("trust_code", "untrained", "weights")
    folder = local_path(request.reference)
    config = _read_json(folder / "config.json")
    missing = [key for key in ("arch", "classes", "input_shape") if key not in config]
    if missing:
        raise PreceptorError(
            f"{folder / 'config.json'} lacks {', '.join(missing)}; is it a run of preceptor?"
        )
    classes = need_classes(request, config["classes"], f"{folder} does not name its classes")
    options: dict[str, Any] = {
        "arch": str(config["arch"]),
        "input_shape": [int(n) for n in config["input_shape"]],
    }
    if options["arch"].startswith("python:"):
        raise PreceptorError(
            f"the network of {str(folder)!r} is your own class {options['arch'][7:]}, which a name cannot build again: "
            f"add it as python:module:factory with --weights {folder / 'model.safetensors'}"
        )
    network = _build(options, len(classes))
    load_strictly(
        network,
        read_state_dict(folder / "model.safetensors"),
        what=f"the model of run {str(folder)!r}",
        architecture=options["arch"],
    )
    preprocessing = request.preprocessing
    if preprocessing is None:
        try:
            preprocessing = Preprocessing.for_size(
                options["input_shape"], config.get("mean") or (), config.get("std") or ()
            )
        except ValidationError as error:
            raise PreceptorError(
                f"{folder / 'config.json'} has no valid preprocessing{first_fault(error)}; is it a run of preceptor?"
            ) from error
    centers = folder / "centers.safetensors"
    result = folder / "result.json"
    accuracy = _read_json(result).get("accuracy") if result.is_file() else None
    return Candidate(
        network,
        classes,
        preprocessing,
        options=options,
        centers=_only_tensor(centers) if centers.is_file() else None,
        accuracy=accuracy if isinstance(accuracy, float | int) and 0 <= accuracy <= 1 else None,
    )


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """The same architecture, for the zoo's weights."""
    return _build(card.source.options, len(card.classes))


def _build(options: dict[str, Any], num_classes: int) -> nn.Module:
    return build(options["arch"], num_classes, tuple(options["input_shape"]), seed=0)


def _only_tensor(path: Path) -> Any:
    tensors = read_state_dict(path)
    if "centers" not in tensors:
        raise PreceptorError(f"{str(path)!r} has no tensor 'centers'; it has {', '.join(tensors) or 'none'}")
    return tensors["centers"]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise PreceptorError(f"no file {str(path)!r}; give the folder of a finished run")
    check_size(str(path), path.stat().st_size, MAX_CARD_BYTES)
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise PreceptorError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise PreceptorError(f"{str(path)!r} holds no JSON object; is it a run of preceptor?")
    return value
