"""Random views: said where nobody spoke of them, and the same by either name of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preceptor import Task
from preceptor.core import PreceptorError
from preceptor.distill.train import train
from tests.distill.toys import toy_task, vector_task

CALL: dict[str, Any] = {
    "student": "cnn-2",
    "device": "cpu",
    "progress": False,
    "recipe": "quick",
    "epochs": 1,
}


def coloured(side: int = 8) -> Task:
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (8, 3, side, side)).astype(np.uint8)
    labels = np.arange(8) % 2
    return Task.from_arrays(images, labels, images, labels, ["a", "b"])


@pytest.mark.parametrize(("side", "views"), [(63, "pad-crop-flip"), (64, "random-resized-crop-flip")])
def test_of_images_in_colour_it_is_said_that_random_views_may_do_good(side: int, views: str) -> None:
    (note,) = train(coloured(side), **CALL).notes
    assert f"augment='{views}' (--augment {views})" in note
    assert train(coloured(), image_size=side, **CALL).notes == (note,)


def test_not_of_others_nor_where_it_was_settled() -> None:
    assert train(toy_task(), **CALL).notes == ()
    assert train(vector_task(), **{**CALL, "student": "mlp-8"}).notes == ()
    for augment in ("none", "flip"):
        assert train(coloured(), augment=augment, **CALL).notes == ()
    teacher = train(coloured(), **CALL)
    asked_once = train(coloured(), method="kd", teacher=teacher, cache_teacher=True, **CALL)
    assert asked_once.notes == (), "of what would be refused"


def test_a_run_without_views_goes_on_by_either_name(tmp_path: Path) -> None:
    task = coloured()
    first = train(task, out=tmp_path, **CALL)
    again = train(task, out=tmp_path, augment="none", resume=True, **CALL)
    assert again.accuracy == first.accuracy
    with pytest.raises(PreceptorError, match=r"recipe.augment was null and is \"flip\""):
        train(task, out=tmp_path, augment="flip", resume=True, **CALL)
