"""Where teachers come from: one module for each kind, with `fetch` for adding and `rebuild` for loading."""

from __future__ import annotations

import importlib
from typing import Any

from preceptor.core import PreceptorError

# Modules by name: each imports its framework, and nobody should pay for those they do not use.
SOURCES: dict[str, str] = {
    "timm": "preceptor.zoo.sources.timm",
    "torchvision": "preceptor.zoo.sources.torchvision",
    "hf": "preceptor.zoo.sources.hf",
    "onnx": "preceptor.zoo.sources.onnx",
    "run": "preceptor.zoo.sources.run",
    "python": "preceptor.zoo.sources.python",
}


def source_module(kind: str) -> Any:
    """The module of one kind of source; says which extra to install where its framework is missing."""
    if kind not in SOURCES:
        raise PreceptorError(
            f"no kind of teacher {kind!r}; there are {', '.join(SOURCES)}, as in timm:resnet18"
        )
    try:
        if kind == "hf":
            importlib.import_module("transformers")
        if kind == "onnx":
            importlib.import_module("onnxruntime")
        return importlib.import_module(SOURCES[kind])
    except ModuleNotFoundError as error:
        raise PreceptorError(
            f"{kind}: teachers need the package {error.name!r}; install it with pip install "
            f"'preceptor[{kind}]'"
        ) from error
