"""Samples without labels beside the labelled ones: a teacher has something to say about them, too."""

from __future__ import annotations

import hashlib
import os
from math import ceil

import numpy as np

from preceptor.core import PreceptorError
from preceptor.data.arrays import read_npz_samples
from preceptor.data.folder import read_images
from preceptor.data.sources import PREFIXES, read_source, source_text
from preceptor.data.split import ArrayStore, FileStore, Split, Store
from preceptor.files import local_path

UNLABELLED = -1  # in the place of a label


def read_unlabelled(
    source: str | os.PathLike[str], on_bad_image: str = "fail"
) -> tuple[Split, tuple[str, ...]]:
    """Samples whose labels are not looked at, and the names of images that were left out.

    Args:
        source: A folder, of which all images below are taken; an .npz, of which `train_x` is; or the training part of
            any other form of data.
        on_bad_image: For folders: "fail" or "skip".
    """
    text = source_text(source)
    path = local_path(text)
    bad: tuple[str, ...] = ()
    if text and path.is_dir():
        found, bad = read_images(path, on_bad_image)
    elif path.is_file() and path.suffix.lower() == ".npz":
        found = read_npz_samples(path)
    elif text.partition(":")[0] in PREFIXES:
        found = read_source(text, lambda names: names).train
    else:
        what = "is not a form of data that is known" if text and path.exists() else "does not exist"
        raise PreceptorError(
            f"unlabelled data {text!r} {what}; give a folder of images, an .npz with train_x, or "
            f"{', '.join(f'{prefix}:…' for prefix in PREFIXES)}"
        )
    return found.select(np.arange(len(found)), np.full(len(found), UNLABELLED)), bad


def beside(labelled: Split, unlabelled: Split) -> Split:
    """Both in one split; labelled samples come so often that they are about half of what an epoch sees."""
    if not len(unlabelled):
        raise PreceptorError("there are no unlabelled samples; leave them out or name where some lie")
    unlabelled = _seen_beside(labelled, unlabelled)
    if (labelled.kind, labelled.channels) != (unlabelled.kind, unlabelled.channels):
        raise PreceptorError(
            f"the unlabelled samples are {_described(unlabelled)} and the labelled ones {_described(labelled)}; "
            "both must be of one kind"
        )
    if labelled.kind == "vectors" and labelled.sample_shape != unlabelled.sample_shape:
        raise PreceptorError(
            f"unlabelled vectors of {unlabelled.sample_shape} numbers came beside labelled ones of "
            f"{labelled.sample_shape}; both must have the same columns"
        )
    own, others = np.arange(len(labelled)), len(labelled) + np.arange(len(unlabelled))
    times = _repeats(labelled, unlabelled)
    rows = np.concatenate([np.tile(own, times), others])
    labels = np.concatenate([np.tile(labelled.labels, times), np.full(len(others), UNLABELLED)])
    return Split(_joined(labelled, unlabelled), labels, rows)


def epochs_alone(epochs: int, labelled: Split, unlabelled: Split, batch_size: int) -> int:
    """Epochs over the labelled samples that have as many steps as so many over both: for a fair comparison."""
    seen = _repeats(labelled, unlabelled) * len(labelled) + len(unlabelled)
    return max(1, round(epochs * ceil(seen / batch_size) / ceil(len(labelled) / batch_size)))


def overlaps(unlabelled: Split, train: Split, test: Split) -> list[str]:
    """What to tell of unlabelled samples that the task has as well."""
    count = len(unlabelled)
    in_train, in_test = (int(_among(unlabelled, part).sum()) for part in (train, test))
    told = []
    if in_train:
        labels = "its label" if in_train == 1 else "their labels"
        told.append(f"{_share(in_train, count)} in the training set with {labels} already")
    if in_test:
        these = "it" if in_test == 1 else "them"
        told.append(
            f"{_share(in_test, count)} in the test set: its accuracy is of samples that the student has seen; leave "
            f"{these} out of the unlabelled ones for one that counts"
        )
    return told


def without(unlabelled: Split, held: Split) -> Split:
    """The unlabelled samples that are not among those which are held out to judge by."""
    return unlabelled.select(np.flatnonzero(~_among(unlabelled, held)))


def _share(part: int, count: int) -> str:
    """As in "1 of the 3 unlabelled samples is"."""
    if count == 1:
        return "the only unlabelled sample is"
    return f"{part} of the {count} unlabelled samples {'is' if part == 1 else 'are'}"


def _among(unlabelled: Split, labelled: Split) -> np.ndarray:
    """(N,) bool: which of the unlabelled samples are labelled ones as well."""
    known = set(labelled.identities)
    found = _seen_beside(labelled, unlabelled).identities
    return np.fromiter((one in known for one in found), dtype=bool, count=len(found))


def _seen_beside(labelled: Split, unlabelled: Split) -> Split:
    """The unlabelled samples with the channels of the labelled ones: files can be decoded as grey or as colour."""
    store = unlabelled.store
    if not isinstance(store, FileStore) or labelled.channels in (None, store.channels):
        return unlabelled
    return Split(FileStore(store.root, store.files, labelled.channels), unlabelled.labels, unlabelled.rows)


def _repeats(labelled: Split, unlabelled: Split) -> int:
    return max(1, len(unlabelled) // len(labelled))


def _described(split: Split) -> str:
    return split.kind if split.channels is None else f"images of {split.channels} channels"


def _joined(first: Split, second: Split) -> Store:
    stores = first.store, second.store
    same = first.sample_shape is not None and first.sample_shape == second.sample_shape
    if same and isinstance(stores[0], ArrayStore) and isinstance(stores[1], ArrayStore):
        return ArrayStore(np.concatenate([stores[0].array[first.rows], stores[1].array[second.rows]]))
    return _Joined(first, second)


class _Joined:
    """The samples of one split, then those of another."""

    def __init__(self, first: Split, second: Split) -> None:
        self.parts = (first, second)
        self.vectors = first.kind == "vectors"

    def _at(self, row: int) -> tuple[Split, int]:
        first, second = self.parts
        return (first, row) if row < len(first) else (second, row - len(first))

    def shape(self, row: int) -> tuple[int, ...]:
        """Of one sample."""
        split, place = self._at(row)
        return split.shape(place)

    def load(self, row: int) -> np.ndarray:
        """One sample."""
        split, place = self._at(row)
        return split.pixels(place)

    def identity(self, row: int) -> str:
        """Of one sample, as in its own split."""
        split, place = self._at(row)
        return split.identities[place]

    def identify(self, rows: np.ndarray, digest: hashlib._Hash) -> None:
        """Which rows, and both parts."""
        digest.update(np.ascontiguousarray(rows).data)
        for part in self.parts:
            digest.update(part.fingerprint.encode())

    def path(self, row: int) -> str | None:
        """Where its file lies."""
        split, place = self._at(row)
        return split.path(place)
