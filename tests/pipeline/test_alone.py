"""Whether students see random views of photographs: the one without a teacher says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from preceptor import Task, Zoo, run, train
from preceptor.core import PreceptorError
from preceptor.distill.recipe import RECIPES
from preceptor.pipeline.alone import views_to_try
from preceptor.pipeline.trials import Attempt
from tests.pipeline.blobs import blobs

SIDE = 16
CROPS, SHIFTS = "random-resized-crop-flip", "pad-crop-flip"
LENGTHS = {"patient": 25, "photographs": 27, "mixed": 26}  # epochs, by which recipes can be told apart


def spots(sided: bool, count: int = 30, channels: int = 3, side: int = SIDE, seed: int = 0) -> Task:
    """A bright spot in noise: on the left or on the right, which mirroring forgets; or wide or tall, wherever it is."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 2
        images = random.integers(0, 120, (count, channels, side, side)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            if sided:
                left, top, width, height = (1 + label * side // 2, side // 4, side // 3, side // 3)
            else:
                width, height = (side // 2, side // 5) if label else (side // 5, side // 2)
                left, top = random.integers(0, side - width), random.integers(0, side - height)
            image[:, top : top + height, left : left + width] += 90
        return images, labels

    return Task.from_arrays(*draw(count), *draw(200), ["one", "other"], name="spots")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("views")
    train(
        spots(False, 60, seed=5),
        student="cnn-4",
        out=folder / "run",
        recipe="quick",
        device="cpu",
        progress=False,
    )
    zoo = Zoo(str(folder / "zoo"))
    zoo.add(f"run:{folder / 'run'}", name="spots")
    return zoo


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, epochs in LENGTHS.items():
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=epochs, min_steps=0, mixup=0.2))
    return {"student": "cnn-4", "device": "cpu", "method": "kd", "batch_size": 16, "report": False}


def seen(folder: Path, setting: str = "augment") -> dict[str, Any]:
    """What each training of a run has seen of its images, or another setting of its recipe."""
    return {
        str(file.parent.relative_to(folder)): json.loads(file.read_text())["recipe"][setting]
        for file in sorted(folder.glob("**/config.json"))
    }


def test_random_views_are_tried_on_images_in_colour_where_nothing_was_said(tmp_path: Path) -> None:
    small, large, grey = spots(True), spots(True, 4, side=64), spots(True, channels=1)
    assert views_to_try(small, None) == SHIFTS
    assert views_to_try(small, 64) == views_to_try(large, None) == CROPS
    assert views_to_try(large, 32) == SHIFTS
    for number in range(8):  # of no common size
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.new("RGB", (70 + number, 80)).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    assert views_to_try(Task(tmp_path), 96) == CROPS
    assert views_to_try(grey, None) is views_to_try(blobs("ab"), None) is None


@pytest.mark.parametrize(("sided", "better"), [(True, "none"), (False, SHIFTS)])
def test_students_of_teachers_see_what_was_better_for_the_plain_one(
    zoo: Zoo, tmp_path: Path, quick: dict[str, Any], sided: bool, better: str
) -> None:
    told: list[str] = []
    result = run(zoo, spots(sided), out=tmp_path, notify=told.append, **quick)
    plain = result.config["plain"]
    assert list(plain) == ["plain", "plain-views", "plain-mixed"]
    assert (plain["plain-views"] > plain["plain"]) == (better == SHIFTS), "the task says which is better"
    assert result.trials[0].validation_accuracy == max(plain.values())
    assert result.config["augment"] == better
    expected = {"plain": "none", "plain-views": SHIFTS, "plain-mixed": better, "from-spots": better}
    found = seen(tmp_path)
    assert {name: found[name] for name in expected} == expected
    last = {name: view for name, view in found.items() if name.startswith("all-labels/")}
    assert last
    assert all(view == expected[name.removeprefix("all-labels/")] for name, view in last.items())
    longer = "photographs" if better == SHIFTS else "patient"
    recipes = {"plain": "patient", "plain-views": "photographs", "plain-mixed": "mixed", "from-spots": longer}
    epochs = seen(tmp_path, "epochs")
    assert {name: epochs[name] for name in recipes} == {name: LENGTHS[r] for name, r in recipes.items()}
    assert (
        "held-out ones decide whether students see shifted and mirrored images by the photographs recipe, which takes "
        "longer, or images as they are; --recipe photographs or -o augment=none settles it" in told[1]
    )
    ways = "three times: by the recipes patient and mixed, once on random views of the images by the photographs recipe"
    assert f"training cnn-4 without a teacher, to compare with ({ways})" in told
    beginning = "on shifted and mirrored images the plain student is better" if better == SHIFTS else (
        "shifted and mirrored images do not help the plain student"
    )  # fmt: skip
    assert sum(sentence.startswith(beginning) for sentence in result.verdict) == 1
    assert any("(augment=pad-crop-flip, recipe=photographs)" in one for one in told) == (better == SHIFTS)


def test_the_recipe_for_photographs_can_be_asked_for(zoo: Zoo, tmp_path: Path, quick: dict[str, Any]) -> None:
    run(zoo, spots(False), out=tmp_path, refit=False, recipe="photographs", **quick)
    assert set(seen(tmp_path).values()) == {CROPS}
    epochs = {"plain": 27, "plain-mixed": 26, "from-spots": 27}
    assert epochs.items() <= seen(tmp_path, "epochs").items()


def test_with_many_labels_random_views_make_no_training_longer(
    zoo: Zoo, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preceptor.pipeline.trials.FEW", 10)
    monkeypatch.setitem(RECIPES, "small", replace(RECIPES["small"], epochs=5))
    told: list[str] = []
    run(zoo, spots(False), out=tmp_path, refit=False, notify=told.append, **quick)
    assert {seen(tmp_path, "epochs")[name] for name in ("plain", "plain-views", "from-spots")} == {26}
    assert any("or images as they are; augment (-o augment=none) settles it" in one for one in told)


@pytest.mark.parametrize(
    ("settled", "expected"), [({"augment": "flip"}, "flip"), ({"recipe": "cifar100", "epochs": 1}, SHIFTS)]
)
def test_what_was_settled_is_not_tried(
    zoo: Zoo, tmp_path: Path, quick: dict[str, Any], settled: dict[str, Any], expected: str
) -> None:
    result = run(zoo, spots(False), out=tmp_path, refit=False, **quick, **settled)
    assert set(seen(tmp_path).values()) == {expected}
    assert result.config["augment"] == expected


def test_a_size_that_is_no_number_is_told_as_such(zoo: Zoo, tmp_path: Path, quick: dict[str, Any]) -> None:
    with pytest.raises(PreceptorError, match="image_size '96' came; a whole number was expected"):
        run(zoo, spots(False), out=tmp_path, image_size="96", **quick)


def test_an_interrupted_run_goes_on_with_the_same_views(
    zoo: Zoo, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, on = spots(False), Attempt.on
    whole = run(zoo, task, out=tmp_path / "whole", **quick)

    def interrupted(self: Attempt, *args: Any, **more: Any) -> Any:
        if self.folder.startswith("from-"):
            raise KeyboardInterrupt
        return on(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "on", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(zoo, task, out=tmp_path / "r", **quick)
    again = run(zoo, task, out=tmp_path / "r", resume=True, **quick)
    assert (again.accuracy, again.verdict) == (whole.accuracy, whole.verdict)
    assert seen(tmp_path / "r") == seen(tmp_path / "whole")


def test_a_draw_is_for_images_as_they_are(zoo: Zoo, tmp_path: Path, quick: dict[str, Any]) -> None:
    """At learning rate 0 all students are the same."""
    result = run(zoo, spots(False), out=tmp_path, refit=False, lr=0.0, **quick)
    assert len(set(result.config["plain"].values())) == 1
    assert result.config["augment"] == "none"
