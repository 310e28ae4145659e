"""One picture is one sample, in whatever file or array it comes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preceptor.data import Task
from preceptor.data.repeats import repeated
from preceptor.data.split import ArrayStore, ListStore, Split
from preceptor.data.unlabelled import beside, overlaps, read_unlabelled, without

COUNT = 6


def pictures(seed=0, channels=3):
    """(N, H, W, C)."""
    return np.random.default_rng(seed).integers(0, 256, (COUNT, 8, 10, channels), dtype=np.uint8)


def in_memory(pixels):
    return Split(ArrayStore(pixels.transpose(0, 3, 1, 2).copy()), np.zeros(len(pixels)))


def in_files(folder: Path, pixels, suffix="png", **options):
    folder.mkdir(parents=True)
    for number, image in enumerate(pixels):
        Image.fromarray(image.squeeze()).save(folder / f"{number}.{suffix}", **options)
    return read_unlabelled(folder)[0]


@pytest.mark.parametrize(
    ("suffix", "options"), [("png", {}), ("png", {"compress_level": 0}), ("bmp", {}), ("tiff", {})]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_is_the_array_that_it_holds(tmp_path, suffix, options, channels):
    pixels = pictures(channels=channels)
    wanted = in_memory(pixels).identities
    assert in_files(tmp_path / "files", pixels, suffix, **options).identities == wanted
    assert Split(ListStore(list(pixels.transpose(0, 3, 1, 2))), np.zeros(COUNT)).identities == wanted
    np.savez(tmp_path / "more.npz", train_x=pixels)
    assert read_unlabelled(tmp_path / "more.npz")[0].identities == wanted
    assert len(set(wanted)) == COUNT


def test_shape_and_every_pixel_count():
    pixels = pictures()
    assert set(in_memory(pixels.transpose(0, 2, 1, 3)).identities).isdisjoint(in_memory(pixels).identities)
    other = pixels.copy()
    other[:, -1, -1, -1] ^= 1
    assert set(in_memory(other).identities).isdisjoint(in_memory(pixels).identities)


def test_grey_and_three_equal_channels_are_one_picture(tmp_path):
    grey = pictures(channels=1)
    wanted = in_memory(grey).identities
    colour = in_files(tmp_path / "colour", grey.repeat(3, axis=3))
    assert colour.image_shape == (3, 8, 10)
    assert colour.identities == wanted
    assert in_memory(grey.repeat(3, axis=3)).identities == wanted
    in_files(tmp_path / "mixed/a", grey)
    in_files(tmp_path / "mixed/b", pictures(seed=1))
    beside_colour = read_unlabelled(tmp_path / "mixed")[0]
    assert beside_colour.pixels(0).shape == (3, 8, 10)
    assert beside_colour.identities[:COUNT] == wanted


def test_colour_files_are_compared_as_they_will_be_seen(tmp_path):
    colour = in_files(tmp_path / "files", pictures())
    grey = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in pictures()])[..., None]
    task = in_memory(grey)
    assert set(task.identities).isdisjoint(colour.identities), "a picture turned grey is another picture"
    seen = beside(task, colour)  # … but grey is what a student of grey pictures sees of these files
    assert seen.identities[COUNT:] == task.identities
    assert (
        "6 of the 6 unlabelled samples are in the test set" in overlaps(colour, in_memory(grey[:0]), task)[0]
    )
    assert len(without(colour, in_memory(grey[:2]))) == COUNT - 2


def test_a_second_look_does_not_decode_for_the_identity(tmp_path, monkeypatch):
    pixels = pictures()
    in_files(tmp_path / "files", pixels)
    monkeypatch.setattr("preceptor.data.scan.read_bytes", lambda path: pytest.fail(f"read {path} again"))
    monkeypatch.setattr("preceptor.data.split.read_bytes", lambda path: pytest.fail(f"read {path} again"))
    assert read_unlabelled(tmp_path / "files")[0].identities == in_memory(pixels).identities


def test_a_leak_is_seen_between_files_and_arrays(tmp_path):
    pixels = pictures()
    files, array = in_files(tmp_path / "files", pixels), in_memory(pixels)
    nothing = in_memory(pictures(seed=1))
    for unlabelled, test in ((files, array), (array, files)):
        assert "6 of the 6 unlabelled samples are in the test set" in overlaps(unlabelled, nothing, test)[0]
        assert len(without(unlabelled, test)) == 0
    again = in_files(tmp_path / "again", pixels, compress_level=1)
    assert len(without(again, files.select([0, 1]))) == COUNT - 2


def test_one_sample_is_told_in_the_singular():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 1), dtype=np.uint8)
    three, one = in_memory(pixels), in_memory(pixels[:1])
    in_train, in_test = overlaps(three, one, one)
    assert in_train == "1 of the 3 unlabelled samples is in the training set with its label already"
    assert in_test.startswith("1 of the 3 unlabelled samples is in the test set: ")
    assert "; leave it out of" in in_test
    assert overlaps(one, three, in_memory(pixels[:0])) == [
        "the only unlabelled sample is in the training set with its label already"
    ]


def test_vectors_are_told_apart_by_their_values():
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    split = Split(ArrayStore(vectors), np.zeros(5))
    assert len(set(split.identities)) == 5
    assert len(without(split, split.select([1, 3]))) == 3


def test_training_images_in_the_test_part_are_counted(tmp_path):
    pixels = pictures()
    train, test = in_memory(pixels), in_memory(np.concatenate([pixels[:2], pictures(seed=1), pixels[1:2]]))
    (sentence,) = repeated(train, test)
    assert sentence.startswith(
        "3 of the 9 test images (33 %) are in the training part as well, pixel for pixel"
    )
    assert repeated(in_files(tmp_path / "files", pixels), test) == [sentence]
    assert repeated(train, in_memory(pictures(seed=1))) == []
    vectors = Split(ArrayStore(np.zeros((3, 2), np.float32)), np.zeros(3))
    assert repeated(vectors, vectors) == [], "equal rows of a table may be different things"


@pytest.mark.parametrize(("total", "share"), [(3, "33 %"), (150, "0.7 %"), (40_000, "under 0.1 %")])
def test_a_share_is_told_as_it_is(total, share):
    values = np.arange(total, dtype=np.uint32).view(np.uint8).reshape(total, 1, 2, 2)
    test = Split(ArrayStore(values), np.zeros(total))
    (sentence,) = repeated(test.select([0]), test)
    assert f"1 of the {total} test images ({share}) is in the training part as well" in sentence


def test_rendered_characters_do_not_repeat():
    task = Task("glyphs:digits?per_class=30&test_per_class=10")
    assert repeated(task.train, task.test) == []
