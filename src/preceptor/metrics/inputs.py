"""What every metric does first: numpy or torch in, checked numpy arrays out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from preceptor.core import PreceptorError

LARGEST_SINGLE, SMALLEST_SINGLE = 1e12, 1e-12  # sums of squares beyond are no float32

Array = np.ndarray[Any, np.dtype[Any]]


def as_matrix(values: Any, name: str, *, rows: int | None = None, columns: int | None = None) -> Array:
    """A finite (rows, columns) float32 or float64 array of `values`, without a copy where none is needed.

    float32 and float64 stay what they are, half precisions become float32, integers float64. So does float32 of a
    size whose squares and products leave its range.

    Args:
        values: numpy array, torch tensor (any device, with or without gradient) or nested lists.
        name: what the caller names the argument; it opens the error text.
        rows: the number of rows expected, where it is known.
        columns: the number of columns expected, where it is known.
    """
    array = _as_array(values, name)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise PreceptorError(f"{name} has shape {array.shape}; expected two dimensions, none of them empty")
    for axis, (expected, word) in enumerate(((rows, "rows"), (columns, "columns"))):
        if expected is not None and array.shape[axis] != expected:
            raise PreceptorError(f"{name} has {array.shape[axis]} {word}; expected {expected}")
    # Row sums are a single cheap pass and finite only if every entry is, save for overflow: then look at each.
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(np.abs(array @ np.ones(array.shape[1], dtype=array.dtype)).max())
    if not math.isfinite(largest) and not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise PreceptorError(f"{name} has NaN or infinite values in {bad} of {len(array)} rows")
    # A small sum may be one of large entries.
    small = 0 < largest < SMALLEST_SINGLE and np.abs(array).max() < SMALLEST_SINGLE
    return array.astype(np.float64, copy=False) if small or largest > LARGEST_SINGLE else array


def as_centers(classifier: Any, centers: Any, *, columns: int, rows: int | None = None) -> Array:
    """What stands for the teacher's classes, (C_T, d): stored centres, or else the rows of its last layer."""
    if classifier is None and centers is None:
        raise PreceptorError(
            "neither classifier nor centers came; this metric needs one of them for the teacher's classes"
        )
    name, points = ("classifier", classifier) if centers is None else ("centers", centers)
    return as_matrix(points, name, rows=rows, columns=columns)


def as_tensor(array: Array) -> torch.Tensor:
    """Torch's view of an array, or of a copy where it takes no such array: read-only, or read backwards."""
    odd = any(stride < 0 or stride % array.itemsize for stride in array.strides)
    return torch.from_numpy(array.copy() if odd or not array.flags.writeable else array)


def check_positive(**settings: Any) -> None:
    """Raise unless all of these settings are finite numbers above 0."""
    for name, value in settings.items():
        if not (isinstance(value, int | float | np.number) and 0 < value < math.inf):
            raise PreceptorError(f"{name} is {value!r}; expected a finite number above 0")


def check_count(smallest: int, **settings: Any) -> None:
    """Raise unless all of these settings are whole numbers of at least `smallest`."""
    for name, value in settings.items():
        if not (isinstance(value, int | np.integer) and value >= smallest):
            raise PreceptorError(f"{name} is {value!r}; expected a whole number, at least {smallest}")


def as_labels(labels: Any, samples: int) -> Array:
    """The labels as (samples,) int64; non-negative integers are expected, gaps are allowed."""
    array = _as_array(labels, "labels")
    if array.shape != (samples,):
        raise PreceptorError(
            f"labels have shape {array.shape}; expected ({samples},), one for each row of features"
        )
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "f" and (array == np.floor(array)).all()):
        raise PreceptorError(f"labels are of type {array.dtype}; expected whole numbers")
    if array.min() < 0 or array.max() >= 2**63:
        raise PreceptorError(
            f"labels go from {array.min()} to {array.max()}; expected class indices from 0 on"
        )
    return array.astype(np.int64, copy=False)


def compact_labels(labels: Any, samples: int) -> tuple[Array, int]:
    """Labels renumbered 0 … C-1 in the order of their values, classes without a sample left out; and C."""
    present, indices = np.unique(as_labels(labels, samples), return_inverse=True)
    return indices.reshape(-1).astype(np.int64, copy=False), len(present)


def one_hot(indices: Array, num_classes: int, dtype: Any = np.float64) -> Array:
    """Rows of the identity: (N, num_classes)."""
    table = np.zeros((len(indices), num_classes), dtype=dtype)
    table[np.arange(len(indices)), indices] = 1
    return table


def class_sums(values: Array, indices: Array, num_classes: int) -> Array:
    """The sum of the rows of each class, (num_classes, d), accumulated in float64."""
    order = np.argsort(indices, kind="stable")
    ends = np.cumsum(np.bincount(indices, minlength=num_classes))
    sums = np.zeros((num_classes, values.shape[1]))
    for label, rows in enumerate(np.split(order, ends[:-1])):
        values[rows].sum(axis=0, dtype=np.float64, out=sums[label])
    return sums


def _as_array(values: Any, name: str) -> Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    if values is None:
        raise PreceptorError(f"{name} is missing; this metric needs it")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise PreceptorError(f"{name} has rows of different lengths; expected a table of numbers") from error
    if array.dtype.kind not in "fiub":
        raise PreceptorError(f"{name} is of type {array.dtype}; expected numbers")
    return array
