import time
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import ImageFont

from preceptor.core import PreceptorError
from preceptor.data import Task, glyphs

SMALL = "per_class=6&test_per_class=3"


def test_tasks_have_the_characters_they_name():
    sizes = {name: len(characters) for name, characters in glyphs.TASKS.items()}
    assert sizes == {
        "digits": 10, "hex": 16, "upper-A-M": 13, "upper-N-Z": 13, "upper": 26,
        "lower-a-m": 13, "lower-n-z": 13, "lower": 26, "letters": 52, "greek": 33,
    }  # fmt: skip
    assert glyphs.TASKS["upper-A-M"] == "ABCDEFGHIJKLM"
    assert glyphs.TASKS["lower-n-z"] == "nopqrstuvwxyz"
    assert all(len(set(characters)) == len(characters) for characters in glyphs.TASKS.values())


@pytest.mark.parametrize("name", [*glyphs.TASKS, "letters+greek", "digits+hex"])
def test_every_task_is_made(name):
    task = Task(f"glyphs:{name}?{SMALL}")
    wanted = dict.fromkeys("".join(glyphs.TASKS[part] for part in name.split("+")))
    assert task.classes == tuple(wanted)
    assert task.train.image_shape == (1, 28, 28)
    assert (len(task.train), len(task.test)) == (6 * len(wanted), 3 * len(wanted))
    assert np.bincount(task.train.labels).tolist() == [6] * len(wanted)


def test_faces_are_disjoint_and_shipped():
    assert not set(glyphs.TRAIN_FACES) & set(glyphs.TEST_FACES)
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for face in glyphs.TRAIN_FACES + glyphs.TEST_FACES:
        assert (folder / f"{face}.ttf").is_file()


def test_no_character_is_blank_cut_off_or_the_mark_for_a_missing_one():
    for faces in (glyphs.TRAIN_FACES, glyphs.TEST_FACES):
        for character in glyphs.TASKS["digits"] + glyphs.TASKS["letters"] + glyphs.GREEK:
            shapes = glyphs._outlines(character, faces)[:, 0]
            assert (shapes.sum((1, 2)) > 20).all(), character
            edge = max(shapes[:, 0].max(), shapes[:, -1].max(), shapes[:, :, 0].max(), shapes[:, :, -1].max())
            assert edge == 0, character
    for face in glyphs.TRAIN_FACES + glyphs.TEST_FACES:
        missing = glyphs._render("\U000f1234", face)
        usable = "09AZaz" if face.startswith("cm") else "09AZazαωΩ"
        for character in usable:
            assert not np.array_equal(glyphs._render(character, face), missing), (face, character)


def test_characters_of_one_face_all_differ():
    for face in glyphs.TRAIN_FACES + glyphs.TEST_FACES:
        characters = glyphs.TASKS["digits"] + glyphs.TASKS["letters"]
        if not face.startswith("cm"):
            characters += glyphs.GREEK
        drawn = {glyphs._render(character, face).tobytes() for character in characters}
        assert len(drawn) == len(characters), face


def test_digits_resemble_those_of_the_other_faces():
    """A font with another encoding would agree by chance only, on about one digit in ten."""
    digits = glyphs.TASKS["digits"]
    known = np.stack(
        [glyphs._outlines(c, glyphs.TRAIN_FACES)[:, 0] for c in digits]
    )  # (10, faces, side, side)
    known /= np.linalg.norm(known, axis=(2, 3), keepdims=True)
    for face in glyphs.TEST_FACES:
        nearest = [(known * glyphs._render(c, face)).sum((2, 3)).max(1).argmax() for c in digits]
        assert (np.array(nearest) == np.arange(10)).sum() >= 6, face


def test_samples_are_fixed_by_seed_and_shared_between_tasks():
    first, again, other = (Task(f"glyphs:hex?{SMALL}&seed={seed}") for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    upper = Task(f"glyphs:upper?{SMALL}&seed=1").subset(["A", "B"])
    torch.testing.assert_close(
        upper.train.load(slice(None)), first.subset(["A", "B"]).train.load(slice(None))
    )


def test_training_and_test_images_come_from_their_own_faces():
    task = Task("glyphs:digits?per_class=20&test_per_class=20&noise=0&jitter=0")
    for split, faces in ((task.train, glyphs.TRAIN_FACES), (task.test, glyphs.TEST_FACES)):
        images = split.load(slice(None)).float()[:, 0]
        for image, label in zip(images, split.labels, strict=True):
            outlines = torch.from_numpy(glyphs._outlines(glyphs.TASKS["digits"][label], faces))
            pooled = torch.nn.functional.avg_pool2d(outlines, 2)[:, 0]
            ink = (image - image.min()) / (image.max() - image.min())
            error = (pooled / pooled.amax((1, 2), keepdim=True) - ink).abs().amax((1, 2))
            assert error.min() < 0.02


def test_noise_and_jitter_do_what_they_say():
    quiet = Task(f"glyphs:digits?{SMALL}&noise=0").train.load(slice(None)).float() / 255
    noisy = Task(f"glyphs:digits?{SMALL}&noise=0.1").train.load(slice(None)).float() / 255
    plain = quiet < 0.7
    difference = (noisy - quiet)[plain & (quiet > 0.4)]
    assert 0.09 < difference.std() < 0.11
    still = Task("glyphs:digits?per_class=40&noise=0&jitter=0").train.load(slice(0, 40))
    moved = Task("glyphs:digits?per_class=40&noise=0").train.load(slice(0, 40))

    def middle(images):
        ink = images.float() - 51
        places = torch.arange(28.0)
        return (ink * places).sum((1, 2, 3)) / ink.sum((1, 2, 3))

    assert middle(still).std() < 0.5
    assert middle(moved).std() > 0.8


def test_default_task_is_made_in_seconds():
    begin = time.process_time()
    Task("glyphs:letters?per_class=100&test_per_class=25")
    assert time.process_time() - begin < 10  # about 1 on a free core


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", "there is no glyphs:digit; did you mean 'digits'"),
        ("", "there is no glyphs:; there are "),
        ("digits+upper-A-Z", "there is no glyphs:upper-A-Z; did you mean 'upper"),
        ("digits?colour=1", "no option 'colour'; expected per_class, test_per_class, noise, jitter, seed"),
        ("digits?per_class=0", "'per_class=0' is out of range; expected a number from 1 to 20000"),
        ("digits?per_class=2.5", "'per_class=2.5' is out of range"),
        ("digits?per_class", "'per_class' is out of range"),
        ("digits?noise=nan", "'noise=nan' is out of range"),
        ("digits?per_class=1000000000", "is out of range"),
    ],
)
def test_wrong_names_are_answered_with_what_to_do(name, message):
    with pytest.raises(PreceptorError, match=message):
        Task(f"glyphs:{name}")


def test_fonts_are_sized_by_their_capitals():
    for face in glyphs.TRAIN_FACES + glyphs.TEST_FACES:
        font = glyphs._font(face)
        assert isinstance(font, ImageFont.FreeTypeFont)
        _, top, _, bottom = font.getbbox("H", anchor="ls")
        assert abs((bottom - top) - 0.62 * glyphs.FINE) <= 1.5
