"""Samples that come as arrays: from memory, from an `.npz`, from a torch `Dataset`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from preceptor.core import PreceptorError
from preceptor.data.images import pixels_of
from preceptor.data.split import ArrayStore, ListStore, Split
from preceptor.wording import counted

MAX_NPZ_BYTES = 64 * 2**30  # uncompressed
KEYS = ("train_x", "train_y", "test_x", "test_y", "val_x", "val_y", "classes")


def as_array(values: Any) -> np.ndarray:
    """An array of what came; torch's short floats, which numpy has not, become float32."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() and values.itemsize <= 2 else values).numpy()


def samples(values: Any, name: str) -> np.ndarray:
    """Check one array of samples: images become uint8 (N, C, H, W), vectors float32 (N, d).

    Images whose second and last axis could both be channels are read as is usual for their type: a tensor of torch
    has its channels first, any other array has them last.
    """
    array = as_array(values)
    if array.dtype.kind not in "buif":
        raise PreceptorError(f"{name} holds {array.dtype}, expected numbers: uint8 images or float vectors")
    if array.ndim == 2:
        with np.errstate(over="ignore"):  # what became too large is told below
            vectors = array.astype(np.float32)
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            large = np.isfinite(array[row]).all()
            found = "numbers too large for float32" if large else "NaN or infinite values"
            advice = "scale its columns down" if large else "clean the vectors first"
            raise PreceptorError(f"{name} has {found}, first in row {row}; {advice}")
        return np.ascontiguousarray(vectors)
    if array.ndim not in (3, 4):
        raise PreceptorError(
            f"{name} has shape {array.shape}, expected images (N, H, W, C) or (N, H, W), or vectors (N, d)"
        )
    if array.dtype != np.uint8:
        came = getattr(values, "dtype", array.dtype)
        raise PreceptorError(
            f"{name} holds images as {came}, expected uint8 from 0 to 255; scale and cast them"
        )
    if array.ndim == 3:
        return np.ascontiguousarray(array[:, None])
    first, last = array.shape[1] in (1, 3), array.shape[3] in (1, 3)
    if first and (isinstance(values, torch.Tensor) or not last):
        return np.ascontiguousarray(array)
    if last:
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    raise PreceptorError(f"{name} has shape {array.shape}, expected images (N, H, W, C) with 1 or 3 channels")


def labels_of(values: Any, rows: int, name: str) -> np.ndarray:
    """Check one array of labels: (N,) integers."""
    array = as_array(values)
    if array.shape != (rows,):
        raise PreceptorError(f"{name} has shape {array.shape}, expected ({rows},): one label for each sample")
    if array.dtype.kind not in "iu":
        raise PreceptorError(
            f"{name} holds {array.dtype}, expected integers that count from 0; convert the labels"
        )
    return array.astype(np.int64)


def array_split(values: Any, labels: Any, name: str) -> Split:
    """A split over one array of samples and one of labels."""
    array = samples(values, f"{name}_x")
    if not len(array):
        raise PreceptorError(f"{name}_x is empty: there are no {name} samples; add some")
    return Split(ArrayStore(array), labels_of(labels, len(array), f"{name}_y"))


def read_npz(path: Path) -> tuple[Split, Split | None, tuple[str, ...]]:
    """Read `train_x, train_y` and, where present, `test_x, test_y, classes`. Never unpickles.

    Where there is no test part, `val_x, val_y` are it, as in folders.
    """
    content = _arrays(path, ("train_x", "train_y"))
    for part in ("test", "val"):
        if (f"{part}_x" in content) != (f"{part}_y" in content):
            raise PreceptorError(
                f"{path} has only one of {part}_x and {part}_y; give both, or none to split train_x"
            )
    train = array_split(content["train_x"], content["train_y"], "train")
    held = next((part for part in ("test", "val") if f"{part}_x" in content), None)
    test = array_split(content[f"{held}_x"], content[f"{held}_y"], held) if held else None
    if "classes" in content:
        return train, test, class_names(content["classes"], str(path))
    return train, test, numbered_classes(train.labels, str(path))


def read_npz_samples(path: Path) -> Split:
    """`train_x` alone, whatever labels there are; labels are 0."""
    values = _arrays(path, ("train_x",))["train_x"]
    return array_split(values, np.zeros(values.shape[:1], dtype=np.int64), "train")


def _arrays(path: Path, needed: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of an archive that have a meaning here."""
    try:
        _check_archive(path)
        with np.load(path, allow_pickle=False) as archive:
            content = {key: archive[key] for key in KEYS if key in archive.files}
            present = archive.files
    except PreceptorError:
        raise
    except PermissionError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError, MemoryError) as error:
        raise PreceptorError(
            f"{path} cannot be read as an .npz of plain arrays ({error}); write it with numpy.savez, "
            "without object arrays"
        ) from error
    for key in needed:
        if key not in content:
            raise PreceptorError(
                f"{path} has {', '.join(present) or 'no arrays'} but no {key}; expected {', '.join(KEYS)}"
            )
    return content


def class_names(values: np.ndarray, name: str) -> tuple[str, ...]:
    """Class names out of an array of strings."""
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise PreceptorError(
            f"classes in {name} is {values.dtype} of shape {values.shape}; expected a list of strings"
        )
    return tuple(class_name(value, name) for value in values.tolist())


def class_name(value: Any, name: str) -> str:
    """One class name as text; bytes are taken for UTF-8."""
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        text.encode()
    except UnicodeError:
        raise PreceptorError(
            f"classes in {name} has {value!r}, which is not UTF-8; write the names as text, not as bytes"
        ) from None
    return text


def numbered_classes(labels: np.ndarray, name: str) -> tuple[str, ...]:
    """Names for classes that came without: their numbers, of which none may be left out."""
    present = np.unique(labels)
    if not np.array_equal(present, np.arange(len(present))):
        raise PreceptorError(
            f"{name} has train labels from {present[0]} to {present[-1]} for "
            f"{counted(len(present), 'class', 'classes')} without names; labels count from 0 without gaps, so "
            "renumber them"
        )
    return tuple(str(label) for label in present)


def _check_archive(path: Path) -> None:
    """Refuse an archive whose headers promise more than the limit, or other sizes than it holds."""
    with zipfile.ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > MAX_NPZ_BYTES:
            raise PreceptorError(
                f"{path} unpacks to {total} bytes and the limit is {MAX_NPZ_BYTES}; split it up"
            )
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }
                if version not in read:
                    continue
                shape, _, dtype = read[version](stream)
                promised = int(np.prod([int(size) for size in shape], dtype=object)) * dtype.itemsize
                if not dtype.hasobject and promised + stream.tell() != member.file_size:
                    raise PreceptorError(
                        f"{path}: {member.filename} promises {promised} bytes and holds {member.file_size}; "
                        "it is damaged, write it again"
                    )


def dataset_split(dataset: Any, name: str) -> Split:
    """Read a torch `Dataset` of (sample, label) pairs into memory.

    A sample may be a PIL image (read as a file would be), a uint8 array or tensor, a float image in [0, 1] (kept as
    uint8), a vector.
    """
    if isinstance(dataset, DataLoader):
        raise PreceptorError(
            f"a DataLoader came as the {name} data, which gives batches; give the dataset itself, as in loader.dataset"
        )
    pairs: Iterable[Any] = dataset
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        pairs = (dataset[index] for index in range(len(dataset)))
    rows: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) < 2:
            raise PreceptorError(
                f"{name} sample {position} is a {type(pair).__name__}, expected (sample, label)"
            )
        rows.append(_one_sample(pair[0], f"{name} sample {position}"))
        labels.append(
            labels_of(np.atleast_1d(as_array(pair[1])), 1, f"the label of {name} sample {position}")
        )
    if not rows:
        raise PreceptorError(f"the {name} dataset is empty; give one with samples")
    return Split(_store(rows, name), np.concatenate(labels))


def _store(rows: Sequence[np.ndarray], name: str) -> ArrayStore | ListStore:
    shapes = {row.shape for row in rows}
    if len(shapes) == 1:
        return ArrayStore(np.stack(rows))
    if any(len(shape) == 1 for shape in shapes):
        raise PreceptorError(
            f"{name} mixes samples of shapes {sorted(map(str, shapes))[:3]}; vectors need one length"
        )
    channels = {shape[0] for shape in shapes}
    if len(channels) > 1:
        raise PreceptorError(f"{name} mixes grey and colour images; convert them to one mode")
    return ListStore(rows)


def _one_sample(value: Any, name: str) -> np.ndarray:
    """One sample as uint8 (C, H, W) or float32 (d,)."""
    if isinstance(value, Image.Image):
        return pixels_of(value, name)
    array = as_array(value)
    if array.ndim > 3:
        raise PreceptorError(
            f"{name} has shape {array.shape}, expected one image (H, W, C), (H, W) or (C, H, W), or one vector (d,)"
        )
    if array.ndim > 1 and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise PreceptorError(f"{name} has NaN or infinite values; clean the images first")
        if array.min(initial=0) < 0 or array.max(initial=0) > 1:
            raise PreceptorError(
                f"{name} is a float image outside [0, 1]; take the normalisation out of the dataset"
            )
        array = np.round(array * 255).astype(np.uint8)
    if isinstance(value, torch.Tensor) and array.ndim == 3 and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)  # a tensor has its channels first, which an array leaves open
    return samples(array[None], name)[0]
