"""Teachers from torchvision: a model name, with weights from a file or from torchvision's server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn

from preceptor.core import PreceptorError
from preceptor.wording import counted, hint
from preceptor.zoo.card import Card, Preprocessing
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes, offline
from preceptor.zoo.weights import load_strictly, read_state_dict


def fetch(request: Request) -> Candidate:
    """Build the model and load its weights: a file, the published ones, or random ones if asked for."""
    request.refuse("trust_code")
    request.refuse_two_weights()
    name, _, version = request.reference.partition("@")
    published = _published(name, version, request.weights)
    known = None
    if request.weights is None or request.weights.name == Path(published.url).name:
        known = tuple(published.meta["categories"])
    classes = need_classes(request, known, f"weights file {_file_name(request)} does not name its classes")
    if request.weights is None and not request.untrained and len(classes) != len(known or ()):
        raise PreceptorError(
            f"{request.text} was published with {len(known or ())} classes and {counted(len(classes), 'name')} came: "
            "a head for other classes would be random; give --weights FILE with the weights for them"
        )
    options = {"num_classes": len(classes)}
    network = _build(name, options)
    if not request.untrained:
        state = read_state_dict(request.weights) if request.weights else _download(request, published)
        load_strictly(
            network, state, what=f"weights file {_file_name(request)}", architecture=f"torchvision:{name}"
        )
    preprocessing = request.preprocessing or _preprocessing(published)
    return Candidate(network, classes, preprocessing, options=options, trained=not request.untrained)


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """The same architecture, for the zoo's weights."""
    name = card.source.reference.partition("@")[0]
    _published(name, "", None)
    return _build(name, {"num_classes": len(card.classes)})


def _file_name(request: Request) -> str:
    return repr(request.weights.name) if request.weights else "from torchvision"


def _published(name: str, version: str, weights: Path | None) -> Any:
    """The published weights' description: the version asked for, that of the file's name, or the default."""
    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        near = hint(name, names, "see torchvision.models.list_models()")
        raise PreceptorError(f"torchvision has no classifier {name!r}; {near}")
    members = torchvision.models.get_model_weights(name)
    if version:
        if version not in members.__members__:
            raise PreceptorError(
                f"torchvision:{name} has weights {', '.join(members.__members__)}, not {version!r}"
            )
        return members[version]
    if weights is not None:
        for member in members:
            if Path(member.url).name == weights.name:
                return member
    return members.DEFAULT


def _build(name: str, options: dict[str, Any]) -> nn.Module:
    if name in ("googlenet", "inception_v3"):
        options = {**options, "init_weights": True}  # the default, said aloud: torchvision warns otherwise
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torchvision.models.get_model(name, weights=None, **options)


def _preprocessing(published: Any) -> Preprocessing:
    transforms = published.transforms()
    (side,) = transforms.crop_size
    return Preprocessing(
        input_size=(3, side, side),
        resize=transforms.resize_size[0],
        crop="center",
        interpolation=transforms.interpolation.value,
        antialias=bool(transforms.antialias),
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )


def _download(request: Request, published: Any) -> dict[str, torch.Tensor]:
    try:
        return published.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except Exception as error:  # urllib, ssl and the hash check raise unrelated kinds
        raise offline(f"the published weights of {request.text}", error) from error
