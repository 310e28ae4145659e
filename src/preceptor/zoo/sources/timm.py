"""Teachers from timm: a model name, with weights from a file or from the hub."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import timm
import timm.data
import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.wording import counted, hint
from preceptor.zoo.card import Card, Preprocessing
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes, offline
from preceptor.zoo.sources.imagenet import imagenet_classes
from preceptor.zoo.weights import load_strictly, read_state_dict

_INTERPOLATIONS = {"nearest", "bilinear", "bicubic"}


def fetch(request: Request) -> Candidate:
    """Build the model and load its weights: a file, the hub's, or random ones if asked for."""
    request.refuse("trust_code")
    request.refuse_two_weights()
    config = _config(request.reference)
    published = request.weights is None and not request.untrained
    known = _published_classes(config) if request.weights is None else None
    classes = need_classes(request, known, f"a weights file for {request.text} does not name its classes")
    if published and config.num_classes != len(classes):
        raise PreceptorError(
            f"{request.text} was published with {config.num_classes} classes and {counted(len(classes), 'name')} came: "
            "a head for other classes would be random; give --weights FILE with the weights for them"
        )
    options = _options(config, len(classes), request.preprocessing)
    network = _build(request.reference, options)
    preprocessing = request.preprocessing or _preprocessing(network)
    if not request.untrained:
        path = request.weights or _download(request, config)
        load_strictly(
            network, read_state_dict(path), what=f"weights file {path.name!r}", architecture=request.text
        )
    return Candidate(
        network,
        classes,
        preprocessing,
        options=options,
        trained=not request.untrained,
        licence=config.license if published else None,
    )


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """The same architecture, for the zoo's weights."""
    _config(card.source.reference)
    return _build(card.source.reference, card.source.options)


def _config(name: str) -> Any:
    architecture = name.split(".")[0]
    if not timm.is_model(architecture):
        near = hint(name, timm.list_models(), "see timm.list_models()")
        raise PreceptorError(f"timm has no model {name!r}; {near}")
    config = timm.models.get_pretrained_cfg(name)
    if config is None:
        config = timm.models.get_pretrained_cfg(architecture)
    if config is None:
        raise PreceptorError(
            f"timm says nothing about the inputs of {name!r}; choose a model with a configuration"
        )
    return config


def _options(config: Any, num_classes: int, preprocessing: Preprocessing | None) -> dict[str, Any]:
    options: dict[str, Any] = {"num_classes": num_classes}
    if preprocessing is not None and len(preprocessing.input_size) == 3:
        channels, *sides = preprocessing.input_size
        if channels != config.input_size[0]:
            options["in_chans"] = channels
        if config.fixed_input_size and tuple(sides) != tuple(config.input_size[1:]):
            options["img_size"] = sides
    return options


def _build(name: str, options: dict[str, Any]) -> nn.Module:
    unknown = set(options) - {"num_classes", "in_chans", "img_size"}
    if unknown:
        raise PreceptorError(
            f"the card asks timm for {sorted(unknown)}, which a zoo never stores; it was altered"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return timm.create_model(name, pretrained=False, **options)
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            raise PreceptorError(f"timm cannot build {name!r} with {options}: {error}") from error


def _preprocessing(network: nn.Module) -> Preprocessing:
    config = timm.data.resolve_model_data_config(network)
    mode, interpolation = config["crop_mode"], config["interpolation"]
    if mode not in ("center", "squash") or interpolation not in _INTERPOLATIONS:
        raise PreceptorError(
            f"this model wants crop mode {mode!r} with {interpolation!r} interpolation, which is not "
            "supported; "
            "give --input-size, --resize, --crop, --mean and --std"
        )
    size = tuple(config["input_size"])
    resize = math.floor(min(size[1:]) / config["crop_pct"])
    squash = mode == "squash" or size[1] != size[2]
    if squash and config["crop_pct"] != 1.0:
        raise PreceptorError(
            "this model squashes images and then crops them, which is not supported; "
            "give --input-size, --resize, --crop, --mean and --std"
        )
    return Preprocessing(
        input_size=size,
        resize=None if squash else resize,
        crop="squash" if squash else "center",
        interpolation=interpolation,
        mean=config["mean"],
        std=config["std"],
    )


def _published_classes(config: Any) -> tuple[str, ...] | None:
    if config.num_classes == 0:
        raise PreceptorError(
            f"timm:{config.architecture} was published without a classifier; it cannot be a teacher"
        )
    names = config.label_names
    if names is not None and len(names) == config.num_classes:
        return tuple(names)
    subset = timm.data.infer_imagenet_subset(config.to_dict())
    return imagenet_classes(subset) if subset else None


def _download(request: Request, config: Any) -> Path:
    try:
        if config.hf_hub_id:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(config.hf_hub_id, config.hf_hub_filename or "model.safetensors"))
        if config.url:
            from torch.hub import download_url_to_file, get_dir

            path = Path(get_dir()) / "checkpoints" / Path(config.url).name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                download_url_to_file(config.url, str(path), progress=False)
            return path
    except Exception as error:  # the hub's client raises a dozen unrelated kinds when offline
        raise offline(f"the published weights of {request.text}", error) from error
    raise PreceptorError(
        f"{request.text} has no published weights: give --weights FILE, or --untrained for random ones"
    )
