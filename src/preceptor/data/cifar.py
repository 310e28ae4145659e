"""CIFAR-10 and CIFAR-100 in torchvision's format, whose files are pickles: read without running them."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from preceptor.core import PreceptorError
from preceptor.data.split import ArrayStore, Split

MAX_FILE_BYTES = 2**30

# name -> (folder, training files, test files, labels, file of names, names)
LAYOUTS = {
    "cifar10": (
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        ("test_batch",),
        "labels",
        "batches.meta",
        "label_names",
    ),
    "cifar100": ("cifar-100-python", ("train",), ("test",), "fine_labels", "meta", "fine_label_names"),
}


class DtypeRecord:
    """Stands in for `numpy.dtype`: remembers its code and byte order, for whole numbers and floats only."""

    def __init__(self, code: str, *_flags: Any) -> None:
        if not isinstance(code, str) or code not in PLAIN_CODES:
            raise pickle.UnpicklingError(f"it holds an array of {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "<")


class ArrayRecord:
    """Stands in for an array: numpy's own `__setstate__` would trust what the file says about itself."""

    array: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 wrote bytes as text
        self.array = np.frombuffer(content, dtype=kind.dtype).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_arguments: Any) -> ArrayRecord:
    """Stand in for numpy's `_reconstruct`, which would make any class that it is given."""
    return ArrayRecord()


def _latin1(text: str, encoding: str) -> bytes:
    """Stand in for `_codecs.encode`, by which Python 3 writes bytes into old pickles."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds bytes in {encoding}")
    return text.encode("latin1")


PLAIN_CODES = frozenset({"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"})
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct, never called
    ("numpy", "dtype"): DtypeRecord,
    ("_codecs", "encode"): _latin1,
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and arrays. Any other name in the file is refused, not called."""

    def find_class(self, module: str, name: str) -> Any:
        """Only what arrays are made of."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """One CIFAR file as a dict."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise PreceptorError(
            f"{path} has {size} bytes and the limit is {MAX_FILE_BYTES}; this is no CIFAR file"
        )
    try:
        content = ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a hostile stream can make the unpickler raise anything
        raise PreceptorError(
            f"{path} is not a plain CIFAR file ({error}); nothing in it was run, download the data set again"
        ) from error
    if not isinstance(content, dict):
        raise PreceptorError(
            f"{path} holds a {type(content).__name__}, expected a dict; download the data set again"
        )
    return {
        key: value.array if isinstance(value, ArrayRecord) else value
        for key, value in content.items()
        if isinstance(key, str)
    }


def read_cifar(name: str, root: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """Train split, test split and class names of "cifar10" or "cifar100"."""
    folder, train, test, labels, meta, names = LAYOUTS[name]
    base = root if (root / meta).is_file() else root / folder
    missing = [file for file in (*train, *test, meta) if not (base / file).is_file()]
    if missing:
        raise PreceptorError(
            f"{name}: {base} has no {', '.join(missing)}; "
            f"give the folder that holds {folder}/, as torchvision unpacks it"
        )
    classes = read_pickle(base / meta).get(names)
    if not isinstance(classes, list) or not all(isinstance(entry, str) for entry in classes):
        raise PreceptorError(f"{base / meta} has no list {names!r}; download the data set again")
    return _read_split(base, train, labels), _read_split(base, test, labels), tuple(classes)


def _read_split(base: Path, files: tuple[str, ...], key: str) -> Split:
    images, labels = [], []
    for file in files:
        content = read_pickle(base / file)
        data, marks = content.get("data"), content.get(key)
        if (
            not isinstance(data, np.ndarray)
            or data.dtype != np.uint8
            or data.shape[1:] != (3072,)
            or not isinstance(marks, list)
            or len(marks) != len(data)
        ):
            raise PreceptorError(
                f"{base / file} does not hold uint8 'data' (N, 3072) and N {key!r}; "
                "download the data set again"
            )
        if not all(isinstance(mark, int) for mark in marks):
            raise PreceptorError(
                f"{base / file} has {key!r} that are no integers; download the data set again"
            )
        images.append(data.reshape(-1, 3, 32, 32))
        labels.append(np.array(marks, dtype=np.int64))
    return Split(ArrayStore(np.ascontiguousarray(np.concatenate(images))), np.concatenate(labels))
