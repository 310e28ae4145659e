"""Class names and preprocessing as ``preceptor zoo add`` takes them."""

from __future__ import annotations

import json
from typing import Any

from preceptor.core import PreceptorError
from preceptor.files import local_path


def read_classes(text: str | None) -> list[str] | str | None:
    """Class names from the command line: a list, a file, or the name of a label set."""
    if text is None:
        return None
    path = local_path(text)
    if path.suffix in (".txt", ".json") or path.is_file():
        if not path.is_file():
            raise PreceptorError(f"no file {text!r} with class names")
        content = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return [line.strip() for line in content.splitlines() if line.strip()]
        try:
            names = json.loads(content)
        except ValueError as error:
            raise PreceptorError(f"{text!r} is no JSON: {error}") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise PreceptorError(f"{text!r} holds no JSON list of names")
        return names
    if text.startswith("imagenet-"):
        return text
    from preceptor.data.protocol import parse_classes

    return parse_classes(text)


def parse_preprocessing(
    source: str,
    input_size: str | None,
    resize: int | None,
    crop: str | None,
    interpolation: str | None,
    mean: str | None,
    std: str | None,
) -> dict[str, Any] | None:
    """The preprocessing that was asked for; None for the source's own."""
    if all(value is None for value in (input_size, resize, crop, interpolation, mean, std)):
        return None
    if mean is None or std is None:
        raise PreceptorError("a preprocessing of your own needs both --mean and --std (0 and 1 for none)")
    size: tuple[float, ...] | None = _numbers("--input-size", input_size) if input_size else None
    if size is None and source.startswith("onnx:"):
        from preceptor.zoo.sources import source_module

        size = source_module("onnx").input_size(source.removeprefix("onnx:"))
    if size is None or len(size) not in (1, 3):
        raise PreceptorError(
            "a preprocessing of your own needs --input-size C,H,W (or one number for vectors)"
        )
    channels = int(size[0])
    values: dict[str, Any] = {"input_size": [int(n) for n in size]}
    for key, text in (("mean", mean), ("std", std)):
        numbers = _numbers("--" + key, text)
        values[key] = numbers * channels if len(numbers) == 1 else numbers
    if len(size) == 3:
        square = size[1] == size[2]
        values["crop"] = crop or ("center" if square or resize else "squash")
        if values["crop"] == "center":
            values["resize"] = resize or int(min(size[1:]))
        elif resize is not None:
            raise PreceptorError(f"--resize goes with --crop center, not with {values['crop']}")
    if interpolation is not None:
        values["interpolation"] = interpolation
    return values


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.replace("x", ",").split(","))
    except ValueError as error:
        raise PreceptorError(f"{option} {text!r} is no list of numbers; write them as 3,224,224") from error
