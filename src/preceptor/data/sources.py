"""Where a task comes from: the DATA forms that the command line and `Task` take."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from preceptor.core import PreceptorError
from preceptor.data.arrays import read_npz
from preceptor.data.cifar import LAYOUTS, read_cifar
from preceptor.data.folder import Select, read_folder
from preceptor.data.split import Split
from preceptor.files import local_path

FORMS = (
    "a folder of class folders (train/ and test/ or val/, or one level), an .npz, "
    "cifar10:ROOT, cifar100:ROOT, or glyphs:TASK"
)


@dataclass(frozen=True)
class Source:
    """What was read, before classes are chosen and a test part is split off."""

    name: str
    train: Split
    test: Split | None
    classes: tuple[str, ...]
    bad_images: tuple[str, ...] = ()


def read_source(source: str | os.PathLike[str], select: Select, on_bad_image: str = "fail") -> Source:
    """Read any DATA form.

    Args:
        source: The DATA string or path.
        select: Which classes will be used, so that a folder need not read the others.
        on_bad_image: For folders: "fail" or "skip".
    """
    text = source_text(source)
    prefix, colon, rest = text.partition(":")
    if colon and prefix in PREFIXES:
        return PREFIXES[prefix](rest)
    path = local_path(text)
    if text and path.is_dir():
        train, test, classes, bad = read_folder(path, select, on_bad_image)
        return Source(path.resolve().name, train, test, classes, bad)
    if path.is_file() and path.suffix.lower() == ".npz":
        return Source(path.stem, *read_npz(path))
    what = "is not a form of data that is known" if text and path.exists() else "does not exist"
    raise PreceptorError(f"data {text!r} {what}; give {FORMS}")


def source_text(source: object) -> str:
    """The DATA string, or the path as one; arrays and data sets have ways of their own to become a task."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        raise PreceptorError(
            f"{type(source).__name__} came as data, expected a path or a name; make a task of arrays with "
            "Task.from_arrays, of data sets with Task.from_datasets"
        )
    return text


def _cifar(name: str) -> Callable[[str], Source]:
    def read(root: str) -> Source:
        if not root:
            raise PreceptorError(f"data '{name}:' names no folder; give {name}:ROOT")
        return Source(name, *read_cifar(name, local_path(root)))

    return read


def _glyphs(name: str) -> Source:
    from preceptor.data.glyphs import (
        read_glyphs,
    )  # matplotlib's fonts and Pillow's font engine load here only

    return Source(f"glyphs:{name}", *read_glyphs(name))


PREFIXES: dict[str, Callable[[str], Source]] = {
    **{name: _cifar(name) for name in LAYOUTS},
    "glyphs": _glyphs,
}
