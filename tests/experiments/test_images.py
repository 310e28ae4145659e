from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from experiments.images import Canvases, Images
from experiments.jobs import SMOKE, distillation
from experiments.schedule import MIXED_EARLY, PATIENT, PATIENT_EARLY, PLAIN, Schedule, small_set

from experiments import sources


def some_images(classes=4, each=6, size=8, canvases=False):
    labels = torch.arange(classes).repeat(each)
    pixels = (
        torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None]
        .expand(-1, 3, size, size)
        .contiguous()
    )
    if not canvases:
        return Images(pixels, labels)
    wide = torch.nn.functional.pad(pixels, (0, 5), value=255)
    sides = torch.full((len(labels),), float(size))
    return Images(pixels, labels, Canvases(wide, sides, sides))


@pytest.mark.parametrize("canvases", [False, True])
def test_views_show_their_own_image_and_nothing_of_the_canvas_beyond(canvases):
    images = some_images(canvases=canvases)
    rows = torch.tensor([3, 20, 7])
    view = images.view(rows, torch.rand(3, images.draws, generator=torch.Generator().manual_seed(0)))
    assert view.shape == (3, 3, 8, 8)
    assert view.dtype == torch.uint8
    for row, picture in zip(rows, view, strict=True):
        values = {int(row)} if canvases else {int(row), 0}  # a shift brings in black
        assert set(picture.flatten().tolist()) <= values


def test_classes_of_a_task_count_from_zero_in_its_order():
    images = some_images(canvases=True)
    part = images.of_classes((2, 0))
    torch.testing.assert_close(part.labels.unique(return_counts=True)[1], torch.tensor([6, 6]))
    origin = part.pixels[:, 0, 0, 0].long()
    torch.testing.assert_close(images.labels[origin], torch.tensor([2, 0])[part.labels])
    torch.testing.assert_close(part.canvases.pixels[:, 0, 0, 0].long(), origin)


def test_validation_images_are_a_share_of_each_class_and_not_trained_on():
    images = some_images(each=10)
    rest, held = images.held_out(0.2, seed=0)
    assert torch.bincount(held.labels).tolist() == [2, 2, 2, 2]
    names = [set(part.pixels[:, 0, 0, 0].tolist()) for part in (rest, held)]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == 40


def test_a_few_images_a_class_depend_on_the_seed_alone():
    images = some_images(each=10)
    first, again, other = (images.per_class(3, seed).pixels[:, 0, 0, 0] for seed in (0, 0, 1))
    torch.testing.assert_close(first, again)
    assert not torch.equal(first, other)
    assert torch.bincount(images.per_class(3, 0).labels).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("images", "expected"),
    [(25000, (256, 200)), (12500, (256, 200)), (5000, (128, 200)), (2500, (64, 200)), (1250, (64, 211)),
     (500, (64, 572)), (20, (20, 4000))],
)  # fmt: skip
def test_small_sets_get_smaller_batches_and_enough_steps(images, expected):
    assert small_set(images, 200, 256) == expected


def test_short_trials_stay_short_and_a_given_batch_is_a_limit():
    assert small_set(500, 2, 256) == (64, 2)
    assert small_set(25000, 200, 128) == (128, 200)


@pytest.mark.parametrize("recipe", [PATIENT, PATIENT_EARLY])
def test_the_patient_recipe_takes_three_times_the_steps(recipe):
    batch, epochs = small_set(1250, 200, 256)
    assert small_set(1250, 200, 256, recipe) == (batch, 3 * epochs)
    assert small_set(1250, 2, 256, recipe) == (batch, 2)


@pytest.mark.parametrize(
    ("recipe", "mixed"), [(PLAIN, 0), (PATIENT, 4), (PATIENT_EARLY, 3), (MIXED_EARLY, 2)]
)
def test_recipes_mix_images_for_their_share_of_the_epochs(lab, recipe, mixed):
    job = distillation(SMOKE, "trial", "cifar100", "wrn-16-1", "none", "wrn-40-2", 0, 0, recipe=recipe)
    schedule = lab.schedule(replace(job, epochs=4), images=100)
    assert sum(schedule.mixes_at(epoch) for epoch in range(4)) == mixed


def test_the_rate_falls_at_the_papers_epochs():
    rates = [Schedule().rate_at(epoch) for epoch in (0, 49, 50, 99, 100, 150, 199)]
    torch.testing.assert_close(
        torch.tensor(rates), torch.tensor([0.1, 0.1, 0.02, 0.02, 0.004, 0.0008, 0.0008])
    )


def test_windows_overlap_as_in_the_paper():
    shares = [sources.KINDS["cifar100"].overlap(0, task) for task in range(6)]
    torch.testing.assert_close(torch.tensor(shares), torch.tensor([1.0, 0.8, 0.6, 0.4, 0.2, 0.0]))
    assert [sources.KINDS["cub200"].overlap(0, task) for task in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_real_data_is_read_from_its_folder(tmp_path):
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(0)
    classes = [f"c{k}" for k in range(100)]
    labels = np.arange(200) % 100
    np.savez(
        tmp_path / "cifar100.npz",
        train_x=chance.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8), train_y=labels,
        test_x=chance.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8), test_y=labels, classes=np.array(classes),
    )  # fmt: skip
    source = sources.load("cifar100", tmp_path, "cpu")
    train, test, names = source.task(5)
    assert len(names) == 50
    assert len(train) == len(test) == 100
    assert not set(names) & set(source.task(0)[2])
    for split in ("train", "test"):
        for k in range(40):
            folder = tmp_path / "domains" / "dogs" / split / f"breed{k}"
            folder.mkdir(parents=True)
            Image.fromarray(chance.integers(0, 256, (112, 130 + k % 3, 3), dtype=np.uint8)).save(
                folder / "0.png"
            )
    dogs = sources.load("dogs", tmp_path, "cpu")
    assert dogs.train.pixels.shape == (40, 3, 112, 112)
    assert dogs.train.canvases.pixels.shape == (40, 3, 112, 132)
    assert dogs.train.view(torch.tensor([0, 1]), torch.rand(2, dogs.train.draws)).shape == (2, 3, 112, 112)


def test_halves_share_classes_and_test_images_and_no_training_image():
    whole = sources.toy("cifar100", "cpu")
    first, second = (sources.half(whole, name) for name in sources.HALVES)
    assert first.classes == second.classes == whole.classes
    assert first.test is second.test is whole.test
    for part in (first, second):
        assert torch.bincount(part.train.labels).tolist() == [part.kind.per_class] * part.kind.classes
    images = [{image.numpy().tobytes() for image in part.train.pixels} for part in (first, second, whole)]
    assert not images[0] & images[1]
    assert images[0] | images[1] == images[2]


def test_a_folder_without_the_data_is_told_in_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match=r"cifar100\.npz is not there; --data names the folder"):
        sources.load("cifar100", tmp_path, "cpu")
