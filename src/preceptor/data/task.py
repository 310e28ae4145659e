"""A labelled data set with class names, split into train and test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from preceptor.core import PreceptorError
from preceptor.data.arrays import array_split, class_name, dataset_split, numbered_classes
from preceptor.data.protocol import Window, parse_classes, parse_window, window_classes
from preceptor.data.sources import read_source
from preceptor.data.split import Split
from preceptor.data.subsets import hold_out, take_per_class, take_stratified
from preceptor.defaults import own_defaults
from preceptor.wording import hint, listed


class Task:
    """A task: train and test splits over the same classes.

    Attributes:
        name: What to call it in tables.
        classes: Class names; a label is a position in them.
        train: The training split.
        test: The test split.
        judged_by: What the test split is: "test", or "validation" where it was held out of the training data.
        bad_images: Files that were left out because they cannot be read.

    Example:
        >>> task = Task("glyphs:digits", window="0:5")
        >>> task.classes
        ('0', '1', '2', '3', '4')
    """

    judged_by = "test"

    @own_defaults()
    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        classes: str | Sequence[str] | None = None,
        window: str | tuple[int, ...] | None = None,
        seed: int = 0,
        test_fraction: float = 0.25,
        on_bad_image: str = "fail",
    ) -> None:
        """Read a task.

        Args:
            source: A folder of class folders, an `.npz`, `cifar10:ROOT`, `cifar100:ROOT` or `glyphs:TASK`.
            classes: Only these classes, in this order; a list, or a text ``a,b,c`` in which a
                name with a comma stands in double quotes.
            window: Only a window of the classes: `START:SIZE[@SEED]` or (start, size[, seed]).
            seed: Of the split into train and test, where the source has none.
            test_fraction: Of each class, where the source has no test part.
            on_bad_image: "fail" refuses a folder with damaged images, "skip" leaves them out and names them.
        """
        if classes is not None and window is not None:
            raise PreceptorError("classes and a window were both given; choose the subset by one of them")
        names = parse_classes(classes) if isinstance(classes, str) else classes
        span = (
            parse_window(window) if isinstance(window, str) else None if window is None else Window(*window)
        )

        def select(available: tuple[str, ...]) -> tuple[str, ...]:
            if span is not None:
                return tuple(available[index] for index in window_classes(len(available), span))
            return available if names is None else known_classes(names, available)

        read = read_source(source, select, on_bad_image)
        name = read.name + _suffix(span, names)
        train, test = read.train, read.test
        if test is None:
            _check(read.name, read.classes, train, train)
            kept, held = hold_out(train.labels, test_fraction, seed, read.classes)
            train, test = train.select(kept), train.select(held)
        _check(name, read.classes, train, test)
        wanted = read.classes if on_folder(read.train) else select(read.classes)
        train, test = (_of_classes(split, read.classes, wanted) for split in (train, test))
        self._fill(name, wanted, train, test, read.bad_images)

    def _fill(
        self, name: str, classes: tuple[str, ...], train: Split, test: Split, bad_images: tuple[str, ...] = ()
    ) -> None:
        _check(name, classes, train, test)
        self.name = name
        self.classes = classes
        self.train = train
        self.test = test
        self.bad_images = bad_images

    @classmethod
    def from_splits(
        cls,
        train: Split,
        test: Split,
        classes: Sequence[str],
        name: str = "task",
        bad_images: tuple[str, ...] = (),
        judged_by: str = "test",
    ) -> Task:
        """A task out of two ready splits."""
        task = cls.__new__(cls)
        task.judged_by = judged_by
        task._fill(name, tuple(str(entry) for entry in classes), train, test, bad_images)
        return task

    @classmethod
    def from_arrays(
        cls,
        train_x: Any,
        train_y: Any,
        test_x: Any,
        test_y: Any,
        classes: Sequence[str] | None = None,
        name: str = "arrays",
    ) -> Task:
        """A task out of arrays: uint8 images (N, H, W, C), (N, H, W), (N, C, H, W), or vectors (N, d).

        Where the shape leaves open which axis holds the channels, as (N, 3, 8, 3) does, a tensor of torch is read as
        (N, C, H, W) and an array of numpy as (N, H, W, C). Labels count from 0.
        """
        train, test = array_split(train_x, train_y, "train"), array_split(test_x, test_y, "test")
        return cls.from_splits(train, test, _names(classes, train, name), name)

    @classmethod
    def from_datasets(
        cls,
        train: Iterable[Any],
        test: Iterable[Any],
        classes: Sequence[str] | None = None,
        name: str = "dataset",
    ) -> Task:
        """A task out of two torch `Dataset`s of (sample, label), not loaders of them, read into memory.

        A sample is a PIL image (read as a file in a folder would be), a uint8 image, a float image in [0, 1], or a
        vector. Where the shape leaves it open, a tensor of torch has its channels first and an array last.
        """
        read = dataset_split(train, "train")
        names = _names(getattr(train, "classes", None) if classes is None else classes, read, name)
        return cls.from_splits(read, dataset_split(test, "test"), names, name)

    def __repr__(self) -> str:
        samples = f"{len(self.train)} + {len(self.test)} {self.kind}"
        return f"Task({self.name!r}: {len(self.classes)} classes, {samples})"

    @property
    def kind(self) -> str:
        """What the samples are: "images" or "vectors"."""
        return self.train.kind

    @property
    def fingerprint(self) -> str:
        """Sha256 in hex over class names, samples and labels: equal content, equal fingerprint."""
        digest = hashlib.sha256()
        for name in self.classes:
            digest.update(name.encode() + b"\0")
        digest.update(f"{self.train.fingerprint} {self.test.fingerprint}".encode())
        return digest.hexdigest()

    def subset(self, classes: Sequence[str], name: str | None = None) -> Task:
        """The task with these classes only, in this order."""
        kept = known_classes(classes, self.classes)
        train, test = (_of_classes(split, self.classes, kept) for split in (self.train, self.test))
        name = name or self.name + _suffix(None, kept)
        return Task.from_splits(train, test, kept, name, self.bad_images, self.judged_by)

    def window(self, start: int, size: int, seed: int | None = None) -> Task:
        """The task with a window of its classes, as in the paper's Fig. 4."""
        span = Window(start, size, seed)
        kept = [self.classes[index] for index in window_classes(len(self.classes), span)]
        return self.subset(kept, name=self.name + _suffix(span, None))

    def sample(self, count: int, seed: int = 0) -> Task:
        """The task with `count` training samples, classes in proportion."""
        return self._with_train(take_stratified(self.train.labels, count, seed, self.classes))

    def per_class(self, count: int, seed: int = 0) -> Task:
        """The task with at most `count` training samples of each class; fewer are a part of more."""
        return self._with_train(take_per_class(self.train.labels, count, seed, self.classes))

    def split_validation(self, fraction: float = 0.1, seed: int = 0) -> tuple[Task, Split]:
        """The task with a smaller training split, and the samples taken from it, classes in proportion.

        A class with a single sample stays in training, and none is taken from it: `never_held_out` says so.
        """
        several = np.flatnonzero(np.bincount(self.train.labels) > 1)
        if not len(several):
            raise PreceptorError(
                f"{self.name} has a single training sample of each class, so none can be held out; give one or more "
                "classes at least 2"
            )
        place = np.full(len(self.classes), -1)
        place[several] = np.arange(len(several))
        names = tuple(self.classes[label] for label in several)
        kept, held = hold_out(place[self.train.labels], fraction, seed, names)
        return self._with_train(kept), self.train.select(held)

    def _with_train(self, rows: np.ndarray) -> Task:
        return Task.from_splits(
            self.train.select(rows), self.test, self.classes, self.name, self.bad_images, self.judged_by
        )


def never_held_out(task: Task) -> list[str]:
    """Says so where `split_validation` can take nothing from a class."""
    counts = np.bincount(task.train.labels)
    single = [repr(name) for name, count in zip(task.classes, counts, strict=True) if count == 1]
    if not single:
        return []
    what = f"a single training {task.kind.removesuffix('s')}"
    if len(single) == 1:
        return [f"class {single[0]} has {what}: it stays in training, and none is held out to judge by"]
    return [
        f"{len(single)} classes ({listed(single, 3)}) have {what} each: these stay in training, and none is held out "
        "to judge by"
    ]


def known_classes(names: Sequence[str], available: tuple[str, ...]) -> tuple[str, ...]:
    """Check class names against those there are."""
    for name in names:
        if name not in available:
            there = f"there are {listed(map(repr, available))}"
            raise PreceptorError(f"there is no class {name!r}; {hint(str(name), available, there)}")
    if len(set(names)) != len(names):
        raise PreceptorError(f"the classes {listed(map(repr, names))} name one twice; name each once")
    return tuple(names)


def _of_classes(split: Split, classes: tuple[str, ...], kept: tuple[str, ...]) -> Split:
    """The samples of some classes, whose places are then those among the kept ones."""
    if kept == classes:
        return split
    position = np.full(len(classes), -1, dtype=np.int64)
    position[[classes.index(entry) for entry in kept]] = np.arange(len(kept))
    labels = position[split.labels]
    chosen = np.flatnonzero(labels >= 0)
    return split.select(chosen, labels[chosen])


def on_folder(split: Split) -> bool:
    """Whether the split's classes were chosen while reading."""
    return split.store.path(0) is not None if len(split) else True


def _suffix(span: Window | None, names: Sequence[str] | None) -> str:
    if span is not None:
        return f"[{span.start}:{span.size}" + ("]" if span.seed is None else f"@{span.seed}]")
    if names is not None:
        return "[" + (",".join(names) if len(names) <= 4 else f"{len(names)} classes") + "]"
    return ""


def _names(classes: Sequence[str] | None, train: Split, name: str) -> tuple[str, ...]:
    if classes is not None:
        return tuple(class_name(entry, name) for entry in classes)
    return numbered_classes(train.labels, name)


def _check(name: str, classes: tuple[str, ...], train: Split, test: Split) -> None:
    """Refuse what no task can be."""
    if len(classes) < 2:
        raise PreceptorError(
            f"{name} has {len(classes)} class ({listed(map(repr, classes))}); a task needs two or more"
        )
    if len(set(classes)) != len(classes) or not all(classes):
        raise PreceptorError(f"{name} has empty or repeated class names; give each class a name of its own")
    for split, part in ((train, "train"), (test, "test")):
        if not len(split):
            raise PreceptorError(f"{name} has no {part} samples; add some")
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= len(classes):
            raise PreceptorError(
                f"{name} has {part} labels from {low} to {high} for {len(classes)} classes; expected 0 to "
                f"{len(classes) - 1}, so mend the labels or name every class"
            )
    missing = np.flatnonzero(np.bincount(train.labels, minlength=len(classes)) == 0)
    if len(missing):
        raise PreceptorError(
            f"{name} has no train samples of class {classes[missing[0]]!r}; add some or leave the class out"
        )
    _check_shapes(name, train, test)


def _check_shapes(name: str, train: Split, test: Split) -> None:
    sized = train.path(0) is None and train.uniform and test.uniform
    if (
        train.kind != test.kind
        or train.channels != test.channels
        or (sized and train.sample_shape != test.sample_shape)
    ):
        raise PreceptorError(
            f"{name} has train samples {train.sample_shape} and test samples {test.sample_shape}; "
            "bring them to one shape"
        )
