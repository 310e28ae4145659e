"""Which classes: names as text, and sliding windows, the paper's way to tasks with a known overlap (Fig. 4). Pure."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Collection, Hashable
from typing import NamedTuple

from preceptor.core import PreceptorError
from preceptor.wording import counted


class Window(NamedTuple):
    """A run of `size` classes that begins at `start`, in the order that the seed gives where there is one."""

    start: int
    size: int
    seed: int | None = None


def parse_classes(text: str) -> list[str]:
    """Class names out of ``a,b,c``; one with a comma in it stands in double quotes: ``"salt, pepper",b``."""
    try:
        (names,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise PreceptorError(
            f"the class names {text!r} cannot be told apart ({error}); write a,b,c, and a name with a comma in double "
            'quotes: "salt, pepper",b'
        ) from None
    return [name.strip() for name in names or [""]]


def parse_window(text: str) -> Window:
    """Read ``START:SIZE`` or ``START:SIZE@SEED``, such as ``20:50@0``."""
    match = re.fullmatch(r"(\d+):(\d+)(?:@(\d+))?", text.strip())
    if not match:
        raise PreceptorError(
            f"window {text!r} is not of the form START:SIZE or START:SIZE@SEED, such as 20:50@0"
        )
    return Window(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))


def class_order(num_classes: int, seed: int | None = None) -> tuple[int, ...]:
    """The order in which windows see the classes: as they come, or shuffled by `seed`."""
    order = list(range(num_classes))
    if seed is not None:
        random.Random(seed).shuffle(order)
    return tuple(order)


def window_classes(num_classes: int, window: Window) -> tuple[int, ...]:
    """The classes that one window covers."""
    start, size, seed = window
    if size < 2:
        raise PreceptorError(
            f"a window of {counted(size, 'class', 'classes')} is no task; use a size of 2 or more"
        )
    if start < 0 or start + size > num_classes:
        raise PreceptorError(
            f"window {start}:{size} ends at class {start + size} but there are only {num_classes} classes; "
            "use a smaller start or size"
        )
    return class_order(num_classes, seed)[start : start + size]


def sliding_windows(
    num_classes: int, size: int, step: int, seed: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """All windows from the first `size` classes to the last, `step` apart.

    CIFAR-100 with size 50 and step 10 gives 6 windows, CUB (200 classes) with 100 and 25 gives 5. The teacher
    has the first window, the students have all of them.
    """
    if step < 1:
        raise PreceptorError(f"a window cannot move by {step} classes; use a step of 1 or more")
    starts = range(0, max(num_classes - size, 0) + 1, step)
    return tuple(window_classes(num_classes, Window(start, size, seed)) for start in starts)


def double_sliding_windows(
    num_classes: int, size: int, step: int, seed: int | None = None
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Every pair (teacher's window, student's window), the teacher's moving slowest."""
    windows = sliding_windows(num_classes, size, step, seed)
    return tuple((teacher, student) for teacher in windows for student in windows)


def overlap(teacher: Collection[Hashable], student: Collection[Hashable]) -> float:
    """The paper's g: the share of the student's classes that the teacher knows, 0 to 1."""
    if not student:
        raise PreceptorError("the student has no classes, so there is no overlap to speak of")
    return len(set(teacher) & set(student)) / len(set(student))
