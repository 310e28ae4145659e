"""A teacher's class centres: given, brought by its run, or taken from data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from preceptor.core import PreceptorError
from preceptor.data.split import ArrayStore
from preceptor.zoo import Teacher, Zoo
from preceptor.zoo.centers import centers_from_task
from tests.zoo.conftest import make_task


def test_centers_are_stored_and_their_source_is_visible(any_zoo: Zoo, run: Path) -> None:
    centers = torch.arange(48.0).reshape(3, 16)
    card = any_zoo.add(f"run:{run}", name="a", centers=centers)
    assert card.centers_source == "stored"
    torch.testing.assert_close(any_zoo.load("a").centers, centers)
    with pytest.raises(PreceptorError, match=r"centres of 'b' have shape \(2, 16\)"):
        any_zoo.add(f"run:{run}", name="b", centers=centers[:2])
    assert any_zoo.names() == ["a"]


def test_run_brings_the_centres_stored_after_training(zoo: Zoo, run: Path) -> None:
    centers = torch.randn(3, 16)
    safetensors.torch.save_file({"centers": centers}, run / "centers.safetensors")
    assert zoo.add(f"run:{run}", name="t").centers_source == "stored"
    torch.testing.assert_close(zoo.load("t").centers, centers)


def test_centres_are_the_mean_features_of_the_teachers_own_classes(zoo: Zoo, run: Path) -> None:
    task = make_task(30, classes=("dog", "cat", "bee", "ant"))
    card = zoo.add(f"run:{run}", name="a", centers_from=task)
    assert card.centers_source == "data"
    teacher = zoo.load("a")
    for index, name in enumerate(teacher.classes):
        rows = np.flatnonzero(task.train.labels == task.classes.index(name))
        mean = teacher.features(teacher.preprocessing.apply(task.train.load(rows))).mean(0)
        torch.testing.assert_close(teacher.centers[index], mean, rtol=1e-4, atol=1e-5)
    assert zoo.verify("a") == []


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_stands_for_a_task(zoo: Zoo, run: Path, tmp_path: Path, kind: type) -> None:
    task = make_task()
    images, labels = task.train.load(slice(None)).numpy(), task.train.labels
    data = tmp_path / "data.npz"
    np.savez(
        data, train_x=images, train_y=labels, test_x=images, test_y=labels, classes=np.array(task.classes)
    )
    assert zoo.add(f"run:{run}", name="path", centers_from=kind(data)).centers_source == "data"
    zoo.add(f"run:{run}", name="task", centers_from=task)
    torch.testing.assert_close(zoo.load("path").centers, zoo.load("task").centers)


def test_centres_do_not_read_the_data_twice(zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayStore, "identify", None)  # a fingerprint would pass over all samples
    assert zoo.add(f"run:{run}", name="a", centers_from=make_task()).centers_source == "data"


def test_centres_need_all_of_the_teachers_classes(teacher: Teacher, zoo: Zoo, run: Path) -> None:
    with pytest.raises(PreceptorError, match="has none named 'bee', 'cat'"):
        centers_from_task(teacher, make_task(classes=("ant", "dog")))
    with pytest.raises(PreceptorError, match="centers and centers_from came together"):
        zoo.add(f"run:{run}", name="b", centers=torch.ones(3, 16), centers_from=make_task())
    assert zoo.names() == ["a"]
