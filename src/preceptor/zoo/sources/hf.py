"""Image classifiers of Hugging Face transformers: a local folder, or ORG/NAME from the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from preceptor.core import PreceptorError
from preceptor.files import local_path
from preceptor.wording import listed
from preceptor.zoo.card import WEIGHTS_FILE, Card, Preprocessing
from preceptor.zoo.limits import MAX_CARD_BYTES, check_size
from preceptor.zoo.preprocessing import first_fault
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes, offline
from preceptor.zoo.weights import load_strictly, read_state_dict

CONFIG_FILE = "hf_config.json"
_PATTERNS = ["config.json", "preprocessor_config.json", "*.safetensors", "model.safetensors.index.json"]
# Those that resize, crop, rescale and normalise and do nothing else. Others (EfficientNet's second scaling,
# MobileViT's swapped channels) would be wrong if read by the same fields.
_PROCESSORS = (
    "ViT",
    "DeiT",
    "Beit",
    "ConvNext",
    "Bit",
    "CLIP",
    "Siglip",
    "MobileNetV1",
    "MobileNetV2",
    "Pvt",
)
_RESAMPLE: dict[Any, Any] = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def fetch(request: Request) -> Candidate:
    """Load the folder's model, refusing any weight that would be random, and read its preprocessing."""
    request.refuse("trust_code", "untrained", "weights")
    folder = local_path(request.reference)
    if not folder.is_dir():
        folder = _download(request)
    config_bytes = _read(folder / "config.json")
    config = _config(config_bytes, request.text)
    network = _load(folder, config, request.text)
    labels = getattr(config, "id2label", None) or {}
    known = tuple(str(labels[i]) for i in sorted(labels))
    classes = need_classes(request, known or None, f"{request.text} has no id2label")
    return Candidate(
        network,
        classes,
        request.preprocessing or _preprocessing(folder, request.text),
        files={CONFIG_FILE: config_bytes},
    )


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """The same architecture, for the zoo's weights; a configuration far larger than those is refused."""
    from transformers import AutoModelForImageClassification

    if CONFIG_FILE not in files:
        raise PreceptorError(
            f"the card of {card.name!r} names no {CONFIG_FILE}; remove the teacher and add it again"
        )
    config = _config(files[CONFIG_FILE], card.name)
    with torch.device("meta"):
        shell = AutoModelForImageClassification.from_config(config)
    size = sum(tensor.numel() * 4 for tensor in shell.state_dict().values())
    if size > 4 * len(files[WEIGHTS_FILE]) + 2**20:
        raise PreceptorError(
            f"{CONFIG_FILE} of {card.name!r} describes a far larger network than its weights fill"
        )
    with torch.random.fork_rng(devices=[]):
        return AutoModelForImageClassification.from_config(config)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise PreceptorError(f"no file {str(path)!r}; give a folder that save_pretrained wrote")
    check_size(str(path), path.stat().st_size, MAX_CARD_BYTES)
    return path.read_bytes()


def _config(data: bytes, what: str) -> Any:
    from transformers import AutoConfig

    try:
        values = json.loads(data)
        if "auto_map" in values:
            raise PreceptorError(
                f"{what} comes with its own code (auto_map in config.json), which is never run here"
            )
        return AutoConfig.for_model(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, PreceptorError):
            raise
        raise PreceptorError(f"the config.json of {what} is not one of transformers: {error}") from error


def _load(folder: Path, config: Any, what: str) -> nn.Module:
    from transformers import AutoModelForImageClassification
    from transformers.utils import logging

    stored = sorted(path.name for path in folder.glob("*.safetensors"))
    pickled = folder / "pytorch_model.bin"
    if not stored and pickled.is_file():
        network = AutoModelForImageClassification.from_config(config)
        load_strictly(network, read_state_dict(pickled), what=f"{what}/{pickled.name}", architecture=what)
        return network
    if not stored:
        raise PreceptorError(
            f"{what} has neither model.safetensors nor pytorch_model.bin; is it a model's folder?"
        )
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # what it would warn of is an error below
    logging.disable_progress_bar()
    try:
        network, info = AutoModelForImageClassification.from_pretrained(
            str(folder),
            config=config,
            output_loading_info=True,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (ValueError, RuntimeError, OSError, KeyError, TypeError) as error:
        lines = " ".join(str(error).split())[:300]
        raise PreceptorError(f"transformers cannot load {what} as an image classifier: {lines}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    problems = [f"{kind.replace('_', ' ')}: {_names(info[kind])}" for kind in sorted(info) if info[kind]]
    if problems:
        raise PreceptorError(
            f"the weights of {what} do not fit its configuration ({'; '.join(problems)}): "
            "nothing is filled in at random; is it a classifier, and was it saved whole?"
        )
    return network


def _names(found: Any) -> str:
    names = sorted(str(entry[0]) if isinstance(entry, tuple) else str(entry) for entry in found)
    return listed(names, 4)


def _preprocessing(folder: Path, what: str) -> Preprocessing:
    from transformers import AutoImageProcessor

    hint = "give --input-size, --resize, --crop, --mean and --std"
    if not (folder / "preprocessor_config.json").is_file():
        raise PreceptorError(f"{what} has no preprocessor_config.json: {hint}")
    try:
        processor = AutoImageProcessor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (ValueError, OSError, ImportError, KeyError, TypeError) as error:
        raise PreceptorError(f"the preprocessor of {what} cannot be read ({error}): {hint}") from error
    kind = type(processor).__name__.split("ImageProcessor")[0].split("FeatureExtractor")[0]
    resample = getattr(processor, "resample", None)
    plain = (
        kind in _PROCESSORS
        and getattr(processor, "do_rescale", True)
        and abs(getattr(processor, "rescale_factor", 1 / 255) - 1 / 255) < 1e-6
        and (not processor.do_resize or resample in _RESAMPLE)
    )
    if not plain:
        raise PreceptorError(
            f"{what} is preprocessed by {type(processor).__name__}, which is not supported: {hint}"
        )
    normalised = getattr(processor, "do_normalize", True)
    try:
        return Preprocessing(
            **_geometry(kind, processor, what),
            interpolation=_RESAMPLE.get(resample, "bilinear"),
            mean=tuple(processor.image_mean) if normalised else (),
            std=tuple(processor.image_std) if normalised else (),
        )
    except ValidationError as error:
        raise PreceptorError(
            f"the preprocessor of {what} is not valid{first_fault(error)}: {hint}"
        ) from error


def _geometry(kind: str, processor: Any, what: str) -> dict[str, Any]:
    """Input size, resize and crop, as the processor's `size` and `crop_size` say."""
    size = dict(processor.size or {}) if processor.do_resize else {}
    shortest = size.get("shortest_edge")
    if kind == "ConvNext" and shortest:
        if shortest >= 384:
            return {"input_size": (3, shortest, shortest), "crop": "squash"}
        return {
            "input_size": (3, shortest, shortest),
            "resize": int(shortest / processor.crop_pct),
            "crop": "center",
        }
    if getattr(processor, "do_center_crop", False):
        crop = dict(processor.crop_size)
        target = (3, crop["height"], crop["width"])
        if not size or shortest:
            return {"input_size": target, "resize": shortest, "crop": "center"}
        if (size.get("height"), size.get("width")) == target[1:]:
            return {"input_size": target, "crop": "squash"}
    elif size.get("height") and size.get("width"):
        return {"input_size": (3, size["height"], size["width"]), "crop": "squash"}
    raise PreceptorError(
        f"{what} resizes by {size} and crops in a way that is not supported: "
        "give --input-size, --resize, --crop, --mean and --std"
    )


def _download(request: Request) -> Path:
    from huggingface_hub import snapshot_download

    if request.reference.count("/") != 1 or request.reference.startswith((".", "/")):
        raise PreceptorError(f"no folder {request.reference!r}; give a folder or ORG/NAME of the hub")
    try:
        return Path(snapshot_download(request.reference, allow_patterns=_PATTERNS))
    except Exception as error:  # the hub's client raises a dozen unrelated kinds when offline
        raise offline(f"{request.text}", error) from error
