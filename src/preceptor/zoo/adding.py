"""From a source to a card and its files: what happens between ``zoo add`` and the storage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.defaults import own_defaults
from preceptor.devices import resolve_device
from preceptor.files import local_path
from preceptor.wording import counted
from preceptor.zoo.card import (
    CENTERS_FILE,
    CHECK_FILE,
    ONNX_FILE,
    WEIGHTS_FILE,
    Card,
    CentersSource,
    FileRecord,
    Probe,
    Source,
    check_name,
)
from preceptor.zoo.network import TorchNetwork
from preceptor.zoo.probe import probe_inputs, probe_outputs
from preceptor.zoo.sources import source_module
from preceptor.zoo.sources.candidate import Candidate, Request
from preceptor.zoo.teacher import Teacher
from preceptor.zoo.weights import network_tensors, to_safetensors

if TYPE_CHECKING:
    from preceptor.data import Task

_LIBRARIES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers", "onnx": "onnxruntime"}


@dataclass(frozen=True)
class Prepared:
    """A teacher ready to be stored."""

    card: Card
    files: dict[str, bytes]
    network: Any


def parse_source(source: str, **options: Any) -> Request:
    """``KIND:REFERENCE`` as a request."""
    kind, separator, reference = source.partition(":")
    if not separator or not reference:
        raise PreceptorError(
            f"{source!r} is no source of a teacher; write timm:NAME, torchvision:NAME, hf:FOLDER, onnx:FILE, "
            "run:RUN or python:module:factory"
        )
    return Request(kind, reference, **options)


@own_defaults()
def prepare(
    request: Request,
    *,
    name: str,
    centers: Tensor | None,
    centers_from: Task | None,
    accuracy: float | None,
    licence: str | None,
    device: str,
) -> Prepared:
    """Fetch, find and prove the head, record the probe, compute centres."""
    check_name(name)
    resolve_device(device)  # one that is not there is told before the weights are fetched
    candidate = source_module(request.kind).fetch(request)
    network = _discover(candidate, request.linear_head)
    outputs, expected = network.weight.shape[0], len(candidate.classes)
    if outputs != expected:
        raise PreceptorError(
            f"{request.text} has {counted(outputs, 'output')} and {counted(expected, 'class name')} came; give one "
            "name for each output"
        )
    centers, source = (centers, "stored") if centers is not None else (candidate.centers, "stored")
    files = _files(candidate, network)
    card = _card(request, candidate, network, files, name=name, accuracy=accuracy, licence=licence)
    if centers_from is not None:
        from preceptor.zoo.centers import centers_from_task

        centers, source = centers_from_task(Teacher(network, card), centers_from, device=device), "data"
        network.cpu()
    if centers is not None:
        files[CENTERS_FILE] = to_safetensors({"centers": centers.float()})
        card = _with_centers(card, files, source)  # type: ignore[arg-type]  # one of the two words above
        Teacher(network, card, centers)  # refuses centres that do not fit
    return Prepared(card, files, network)


def _discover(candidate: Candidate, linear_head: bool) -> Any:
    inputs = probe_inputs(candidate.preprocessing.input_size)
    if isinstance(candidate.network, bytes):
        from preceptor.zoo.onnx_network import OnnxNetwork

        return OnnxNetwork.discover(candidate.network, inputs)
    try:
        return TorchNetwork.discover(candidate.network, inputs, linear_head)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        if isinstance(error, PreceptorError):
            raise
        raise PreceptorError(
            f"the network cannot take inputs of {candidate.preprocessing.input_size}; correct --input-size "
            f"({(str(error).splitlines() or [''])[0][:200]})"
        ) from error


def _files(candidate: Candidate, network: Any) -> dict[str, bytes]:
    files = dict(candidate.files)
    files[CHECK_FILE] = to_safetensors(probe_outputs(network, candidate.preprocessing.input_size))
    if isinstance(candidate.network, nn.Module):
        files[WEIGHTS_FILE] = to_safetensors(network_tensors(candidate.network))
    else:
        files[ONNX_FILE] = candidate.network
    return files


def _card(
    request: Request,
    candidate: Candidate,
    network: Any,
    files: dict[str, bytes],
    *,
    name: str,
    accuracy: float | None,
    licence: str | None,
) -> Card:
    module = candidate.network
    count = getattr(network, "parameter_count", None)
    if isinstance(module, nn.Module):
        count = sum(parameter.numel() for parameter in module.parameters())
    reference = request.reference
    place = local_path(reference)
    if request.kind in ("onnx", "run", "hf") and place.exists():
        # Its folder says nothing elsewhere, and may say too much.
        reference = os.path.basename(os.path.abspath(place))
    libraries = ["preceptor", "torch"] + [_LIBRARIES[k] for k in (request.kind,) if k in _LIBRARIES]
    return Card(
        name=name,
        classes=candidate.classes,
        feature_size=network.weight.shape[1],
        parameters=count or 0,
        preprocessing=candidate.preprocessing,
        source=Source(kind=request.kind, reference=reference, options=candidate.options),  # type: ignore[arg-type]
        head=network.record,
        files=_records(files),
        centers_source="classifier",
        trained=candidate.trained,
        accuracy=accuracy if accuracy is not None else candidate.accuracy,
        licence=licence if licence is not None else candidate.licence,
        probe=Probe(),
        created=datetime.now(UTC).replace(microsecond=0),
        versions={library: metadata.version(library) for library in libraries},
    )


def _with_centers(card: Card, files: dict[str, bytes], source: CentersSource) -> Card:
    return Card(**{**dict(card), "files": _records(files), "centers_source": source})


def _records(files: dict[str, bytes]) -> dict[str, FileRecord]:
    return {name: FileRecord.of(data) for name, data in sorted(files.items())}


def as_tensor(centers: Any) -> Tensor | None:
    """Centres given as a tensor, an array or rows."""
    return None if centers is None else torch.as_tensor(centers, dtype=torch.float32, device="cpu")


def as_task(data: Task | str | os.PathLike[str] | None) -> Task | None:
    """A task as given, or read from where it lies."""
    from preceptor.data import Task

    return data if data is None or isinstance(data, Task) else Task(data)


def as_classes(classes: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Class names as given, or those of a label set by its name (``imagenet-1k``)."""
    if classes is None:
        return None
    if isinstance(classes, str):
        from preceptor.zoo.sources.imagenet import imagenet_classes

        return imagenet_classes(classes)
    return tuple(str(name) for name in classes)
