"""Class names and preprocessing as ``preceptor zoo add`` takes them."""

from __future__ import annotations

import json
from pathlib import Path
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
        content = _read_text(path, text)
        if path.suffix == ".json":
            return _names_in_json(content, text)
        return [line.strip() for line in content.splitlines() if line.strip()]
    if text.startswith("imagenet-"):
        return text
    from preceptor.data.protocol import parse_classes

    return parse_classes(text)


def _read_text(path: Path, name: str) -> str:
    """The file's text, without the mark that some editors put before it."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content:  # half of each letter in UTF-16
        raise PreceptorError(f"the class names in {name!r} are not written in UTF-8; save the file as UTF-8")
    return content


def _names_in_json(content: str, name: str) -> list[str]:
    advice = 'write the names in the order of the outputs, as ["cat", "dog"]'
    try:
        names = json.loads(content)
    except ValueError as error:
        raise PreceptorError(f"{name!r} is no JSON ({error}); {advice}") from error
    if not isinstance(names, list) or not all(isinstance(entry, str) for entry in names):
        raise PreceptorError(f"{name!r} holds no JSON list of names; {advice}")
    return names


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
    from preceptor.zoo.preprocessing import as_preprocessing

    if mean is None or std is None:
        raise PreceptorError("a preprocessing of your own needs both --mean and --std (0 and 1 for none)")
    size = None if input_size is None else _whole_numbers(input_size)
    if size is None and source.startswith("onnx:"):
        from preceptor.zoo.sources import source_module

        size = source_module("onnx").input_size(source.removeprefix("onnx:"))
    if size is None or len(size) not in (1, 3):
        raise PreceptorError(
            "a preprocessing of your own needs --input-size C,H,W (or one number for vectors)"
        )
    values: dict[str, Any] = {"input_size": list(size)}
    as_preprocessing(values)  # refuses a size so large that a number for each channel would fill the memory
    for key, text in (("mean", mean), ("std", std)):
        numbers = _numbers("--" + key, text)
        values[key] = numbers * size[0] if len(numbers) == 1 else numbers
    more = {**_geometry(size, crop, resize), "interpolation": interpolation}
    return values | {key: value for key, value in more.items() if value is not None}


def _geometry(size: tuple[int, ...], crop: str | None, resize: int | None) -> dict[str, Any]:
    """Crop and resize as asked for, and for images what fits their size where nothing was said."""
    if len(size) == 3:
        if crop is None:
            crop = "center" if size[1] == size[2] or resize is not None else "squash"
        if crop == "center":
            resize = min(size[1:]) if resize is None else resize
        elif resize is not None:
            raise PreceptorError(f"--resize goes with --crop center, not with {crop}")
    return {"crop": crop, "resize": resize}


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError as error:
        raise PreceptorError(
            f"--input-size {text!r} is no list of whole numbers; write them as 3,224,224"
        ) from error


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise PreceptorError(
            f"{option} {text!r} is no list of numbers; write one for each channel, as 0.485,0.456,0.406"
        ) from error
