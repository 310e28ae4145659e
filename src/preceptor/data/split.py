"""One half of a task: labelled samples, wherever they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.data.identity import identity
from preceptor.data.images import decode, read_bytes
from preceptor.data.scan import ImageFile

MEMORY_BYTES = 2 * 2**30  # decoded images of a folder are kept in memory up to this

Indices = Sequence[int] | np.ndarray | Tensor | slice  # positions, or a mask with one entry for each sample


class Store(Protocol):
    """Where samples are kept."""

    vectors: bool

    def shape(self, row: int) -> tuple[int, ...]:
        """Of one sample, without reading it."""

    def load(self, row: int) -> np.ndarray:
        """One sample: uint8 (C, H, W) or float32 (d,)."""

    def identify(self, rows: np.ndarray, digest: hashlib._Hash) -> None:
        """Feed what makes these samples what they are into a hash."""

    def identity(self, row: int) -> str:
        """What tells this sample from others, the same wherever it is kept."""

    def path(self, row: int) -> str | None:
        """Where a sample's file lies."""


class ArrayStore:
    """Samples of one shape in one array: uint8 (N, C, H, W) or float32 (N, d)."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.vectors = array.ndim == 2

    def shape(self, row: int) -> tuple[int, ...]:
        """One shape for all."""
        return tuple(self.array.shape[1:])

    def load(self, row: int) -> np.ndarray:
        """One row."""
        return self.array[row]

    def identity(self, row: int) -> str:
        """Of the values."""
        return identity(self.array[row])

    def identify(self, rows: np.ndarray, digest: hashlib._Hash) -> None:
        """The values themselves."""
        digest.update(repr((self.array.dtype.str, self.array.shape[1:])).encode())
        for start in range(0, len(rows), 4096):
            digest.update(np.ascontiguousarray(self.array[rows[start : start + 4096]]).data)

    def path(self, row: int) -> str | None:
        """None: there are no files."""
        return None


class ListStore:
    """Images of several sizes in memory, each uint8 (C, H, W)."""

    vectors = False

    def __init__(self, images: Sequence[np.ndarray]) -> None:
        self.images = images

    def shape(self, row: int) -> tuple[int, ...]:
        """Of one image."""
        return tuple(self.images[row].shape)

    def load(self, row: int) -> np.ndarray:
        """One image."""
        return self.images[row]

    def identity(self, row: int) -> str:
        """Of the values."""
        return identity(self.images[row])

    def identify(self, rows: np.ndarray, digest: hashlib._Hash) -> None:
        """The values themselves."""
        for row in rows:
            digest.update(repr(self.images[row].shape).encode())
            digest.update(np.ascontiguousarray(self.images[row]).data)

    def path(self, row: int) -> str | None:
        """None: there are no files."""
        return None


class FileStore:
    """Image files of a folder, decoded when asked for, kept decoded while they fit into `MEMORY_BYTES`."""

    vectors = False

    def __init__(self, root: Path, files: Sequence[ImageFile], channels: int | None = None) -> None:
        self.root = root
        self.files = files
        # One coloured file makes the whole set coloured: a network has one number of input channels.
        coloured = any(file.shape and file.shape[0] == 3 for file in files)
        self.channels = channels or (3 if coloured else 1)
        pixels = sum(file.shape[1] * file.shape[2] for file in files if file.shape)
        self._kept: dict[int, np.ndarray] | None = {} if pixels * self.channels <= MEMORY_BYTES else None

    def shape(self, row: int) -> tuple[int, ...]:
        """Of one image, known from the scan."""
        return (self.channels, *(self.files[row].shape or ())[1:])

    def load(self, row: int) -> np.ndarray:
        """Decode one file, or take it from memory."""
        if self._kept is not None and row in self._kept:
            return self._kept[row]
        path = self.root / self.files[row].name
        pixels = decode(read_bytes(path), str(path), self.channels)
        if pixels.shape != self.shape(row):
            raise PreceptorError(
                f"{path} has changed since the data was looked through; start again, and leave it alone meanwhile"
            )
        if self._kept is not None:
            self._kept[row] = pixels
        return pixels

    def identity(self, row: int) -> str:
        """Of the image as it is seen, known from the scan unless a colour image is seen in grey."""
        shape = self.files[row].shape
        grey = shape is not None and shape[0] > self.channels
        return identity(self.load(row)) if grey else self.files[row].identity

    def identify(self, rows: np.ndarray, digest: hashlib._Hash) -> None:
        """Relative paths, sizes and hashes of the files, and whether they are read as grey or colour."""
        digest.update(f"{self.channels} channels\n".encode())
        for row in rows:
            file = self.files[row]
            digest.update(f"{file.name}\0{file.size}\0{file.sha256}\n".encode())

    def path(self, row: int) -> str | None:
        """The file."""
        return str(self.root / self.files[row].name)


class Split:
    """Labelled samples in a fixed order.

    Attributes:
        labels: (N,) int64, positions in the task's classes.
        kind: "images" or "vectors".
        image_shape: (C, H, W) where all images have one size, else None.
        uniform: Whether all samples have one shape.
    """

    def __init__(self, store: Store, labels: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.store = store
        self.labels = np.ascontiguousarray(labels, dtype=np.int64)
        self.rows = np.arange(len(labels)) if rows is None else rows
        known = self.rows[:1] if isinstance(store, ArrayStore) else self.rows
        self._shapes = sorted({store.shape(int(row)) for row in known})
        self._fingerprint: str | None = None
        self._identities: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = self.sample_shape or "several sizes"
        return f"Split({len(self)} {self.kind}, {shape})"

    @property
    def kind(self) -> str:
        """What the samples are: "images" or "vectors"."""
        return "vectors" if self.store.vectors else "images"

    @property
    def uniform(self) -> bool:
        """Whether all samples have one shape."""
        return len(self._shapes) <= 1

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """(C, H, W) or (d,) where all samples have one shape, else None."""
        return self._shapes[0] if len(self._shapes) == 1 else None

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(C, H, W) where all images have one size, else None."""
        shape = self.sample_shape
        return (shape[0], shape[1], shape[2]) if shape is not None and len(shape) == 3 else None

    @property
    def channels(self) -> int | None:
        """1 or 3 for images, None for vectors."""
        return None if self.kind == "vectors" or not self._shapes else self._shapes[0][0]

    @property
    def largest(self) -> tuple[int, ...]:
        """The greatest extent along each axis over all samples."""
        return tuple(max(sizes) for sizes in zip(*self._shapes, strict=True))

    @property
    def fingerprint(self) -> str:
        """Sha256 over samples and labels in their order, in hex."""
        if self._fingerprint is None:
            digest = hashlib.sha256(self.kind.encode())
            digest.update(self.labels.data)
            self.store.identify(self.rows, digest)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    @property
    def identities(self) -> list[str]:
        """What tells one sample from another: equal for the same picture in a file, saved again, or in an array."""
        if self._identities is None:
            self._identities = [self.store.identity(int(row)) for row in self.rows]
        return self._identities

    def load(self, indices: Indices) -> Tensor | list[Tensor]:
        """Samples as tensors on the CPU.

        Args:
            indices: Positions in this split, or a mask with True for each sample that is wanted.

        Returns:
            uint8 (B, C, H, W) where all images have one size, else a list of uint8 (C, H, W);
            float32 (B, d) for vectors.
        """
        rows = self.rows[_positions(indices, len(self))]
        if isinstance(self.store, ArrayStore):
            return torch.from_numpy(self.store.array[rows])
        samples = [torch.from_numpy(np.array(self.store.load(int(row)))) for row in rows]
        if not self.uniform:
            return samples
        return (
            torch.stack(samples)
            if samples
            else torch.empty((0, *(self.sample_shape or ())), dtype=torch.uint8)
        )

    def pixels(self, index: int) -> np.ndarray:
        """One sample as it is kept; do not write into it."""
        return self.store.load(int(self.rows[index]))

    def shape(self, index: int) -> tuple[int, ...]:
        """Of one sample, without reading it."""
        return self.store.shape(int(self.rows[index]))

    def path(self, index: int) -> str | None:
        """Where a sample's file lies, or None for samples without files."""
        return self.store.path(int(self.rows[index]))

    def select(self, indices: Indices, labels: np.ndarray | None = None) -> Split:
        """Some of the samples, in the given order or by a mask, with other labels where given; nothing is copied."""
        chosen = _positions(indices, len(self))
        return Split(self.store, self.labels[chosen] if labels is None else labels, self.rows[chosen])


def _positions(indices: Indices, count: int) -> np.ndarray | slice:
    """What to take of `count` samples; a mask becomes the positions at which it is True."""
    if isinstance(indices, slice):
        return indices
    array = indices.cpu().numpy() if isinstance(indices, Tensor) else np.asarray(indices)
    if array.dtype == bool:
        if array.shape != (count,):
            raise PreceptorError(
                f"a mask of shape {array.shape} came; expected ({count},), one entry for each sample"
            )
        return np.flatnonzero(array)
    if array.size and array.dtype.kind not in "iu":
        whole = array.dtype.kind == "f" and np.isfinite(array).all() and (np.floor(array) == array).all()
        if not whole:
            raise PreceptorError(
                f"indices of {array.dtype} came that are no whole numbers; give positions from 0 to {count - 1}, "
                "or a mask"
            )
    return array.astype(np.int64)
