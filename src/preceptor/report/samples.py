"""Small pictures for the page: one for each class, and some with what student and teacher say about them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from preceptor.data import Task
    from preceptor.data.split import Split
    from preceptor.report.story import Run

SIDE = 40  # px of a class thumbnail
EXAMPLES = 12


@dataclass(frozen=True)
class Opinion:
    """Who says what about an image, and how sure they are."""

    who: str
    says: str
    share: float
    right: bool | None  # None: the teacher, whose classes are others


@dataclass(frozen=True)
class Example:
    """One test image with its true class and what everybody says."""

    picture: str  # data URI
    truth: str
    opinions: Sequence[Opinion]


def thumbnails(task: Task | None) -> dict[str, str]:
    """One training image of each class as a data URI; nothing for vectors."""
    if task is None or task.kind != "images":
        return {}
    first = {int(label): place for place, label in reversed(list(enumerate(task.train.labels)))}
    return {name: picture(task.train, first[label], SIDE) for label, name in enumerate(task.classes)}


def picture(split: Split, index: int, side: int) -> str:
    """An image of a split as a PNG data URI, its longer side at most `side`."""
    from PIL import Image

    pixels = np.asarray(split.load(np.array([index]))[0]).transpose(1, 2, 0)  # (H, W, C)
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((side, side))
    return png_uri(image)


def png_uri(image: Any) -> str:
    """A Pillow image as a data URI."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def examples(task: Task, students: Sequence[Run]) -> list[Example]:
    """Test images with what the students and the last one's teacher say.

    Those come first on which two students differ, or which a single one gets wrong.
    """
    finished = [
        run
        for run in students
        if run.result is not None and not str(run.config.get("arch", "")).startswith("python:")
    ]
    if task.kind != "images" or not finished:
        return []
    from preceptor.distill.saved_run import split_probabilities

    shares = {run.name: split_probabilities(run.path, task.test) for run in finished}
    said = {name: table.argmax(1) for name, table in shares.items()}
    last = said[finished[-1].name]
    dull = last == (said[finished[0].name] if len(finished) > 1 else task.test.labels)
    rows = _spread(np.argsort(dull, kind="stable"), task.test.labels, EXAMPLES)
    teacher = _teacher_says(finished[-1].config, task, rows)
    found = []
    for place, row in enumerate(rows):
        label = int(task.test.labels[row])
        opinions = [
            Opinion(
                name, task.classes[said[name][row]], float(table[row].max()), bool(said[name][row] == label)
            )
            for name, table in shares.items()
        ]
        found.append(
            Example(
                picture(task.test, int(row), 72),
                task.classes[label],
                [*opinions, *teacher[place : place + 1]],
            )
        )
    return found


def _spread(order: np.ndarray, labels: np.ndarray, count: int) -> list[int]:
    """The first rows of `order`, no class twice before every class has had its turn."""
    turns: dict[int, int] = {}
    ranked = []
    for position, row in enumerate(order):
        turn = turns.get(int(labels[row]), 0)
        turns[int(labels[row])] = turn + 1
        ranked.append((turn, position, int(row)))
    return [row for _, _, row in sorted(ranked)[:count]]


def _teacher_says(config: Mapping[str, Any], task: Task, rows: Sequence[int]) -> list[Opinion]:
    """What the teacher takes the images for, in its own classes; nothing where it is out of reach."""
    reference = config.get("teacher") or {}
    where = reference.get("from") if isinstance(reference, Mapping) else None
    if not where:
        return []
    import torch

    from preceptor.core import PreceptorError
    from preceptor.zoo import load_teacher

    try:
        teacher = load_teacher(where)
    except (PreceptorError, OSError):
        return []
    images = teacher.preprocessing.apply(task.test.load(np.array(rows)))
    with torch.no_grad():
        shares = teacher.logits(images).softmax(dim=1)
    best = shares.max(dim=1)
    return [
        Opinion("teacher", teacher.classes[place], share, None)
        for place, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
