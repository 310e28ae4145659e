"""A network trained here sees in the zoo, to the last bit, what it saw in training: the middle square, resized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from preceptor.data import Task
from preceptor.data.loader import Loader
from preceptor.data.split import ListStore, Split
from preceptor.distill.export import export
from preceptor.distill.result import Result
from preceptor.distill.saved_run import predict, split_probabilities
from preceptor.distill.teacher_side import as_given
from preceptor.distill.train import train
from preceptor.zoo import Preprocessing, Teacher, Zoo
from tests.zoo.conftest import make_run

SIZE = 12
# Landscape and portrait, with rests that are even and odd, larger and smaller than the input; and squares.
SHAPES = [(30, 41), (30, 40), (41, 30), (17, 12), (12, 17), (9, 10), (10, 7), (25, 25), (12, 12), (8, 8)]


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def seen_in_training(images: list[np.ndarray]) -> Tensor:
    """What a loader shows of these images: (B, C, SIZE, SIZE) in [0, 1]."""
    split = Split(ListStore(images), np.zeros(len(images), dtype=np.int64))
    return next(Loader(split, len(images), train=False, image_size=SIZE).epoch()).images


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_is_what_training_shows(shape: tuple[int, int], channels: int) -> None:
    images = pixels(4, channels, *shape)
    came = Preprocessing.for_size((channels, SIZE, SIZE)).apply(torch.from_numpy(images))
    torch.testing.assert_close(came, seen_in_training(list(images)), rtol=0, atol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_list_is_what_training_shows(channels: int) -> None:
    images = [pixels(channels, *shape, seed=i) for i, shape in enumerate(SHAPES * 2)]
    came = Preprocessing.for_size((channels, SIZE, SIZE)).apply([torch.from_numpy(image) for image in images])
    torch.testing.assert_close(came, seen_in_training(images), rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_images_in_0_to_1_see_the_same_square_without_the_rounding_to_8_bits(shape: tuple[int, int]) -> None:
    images = pixels(2, 3, *shape)
    came = Preprocessing.for_size((3, SIZE, SIZE)).apply(torch.from_numpy(images).double() / 255)
    assert came.dtype == torch.float32
    # Pillow rounds after each of its two passes.
    torch.testing.assert_close(came, seen_in_training(list(images)), rtol=0, atol=1.01 / 255)


def test_the_square_is_exactly_the_middle() -> None:
    """Seven columns, of which the middle four lie between 1.5 and 5.5: half of the outer two counts."""
    image = torch.tensor([0, 0, 0.4, 0, 0, 0, 0.8]).expand(1, 1, 4, 7)
    square = Preprocessing.for_size((1, 2, 2)).apply(image)
    mirrored = Preprocessing.for_size((1, 2, 2)).apply(image.flip(3))
    torch.testing.assert_close(square, mirrored.flip(3))
    assert square[..., 0].min() > 0


def test_colour_turns_grey_as_image_files_do() -> None:
    colour = pixels(3, 30, 41)
    grey = np.array(Image.fromarray(colour.transpose(1, 2, 0)).convert("L"))[None]
    came = Preprocessing.for_size((1, SIZE, SIZE)).apply(torch.from_numpy(colour)[None])
    torch.testing.assert_close(came, seen_in_training([grey]), rtol=0, atol=0)
    again = Preprocessing.for_size((3, SIZE, SIZE)).apply(torch.from_numpy(grey)[None])
    torch.testing.assert_close(again, came.expand(-1, 3, -1, -1), rtol=0, atol=0)


def test_channels_that_no_image_file_has() -> None:
    images = pixels(2, 7, 30, 41)
    came = Preprocessing.for_size((7, SIZE, SIZE)).apply(torch.from_numpy(images))
    torch.testing.assert_close(
        came[:, 3:4], seen_in_training([image[3:4] for image in images]), rtol=0, atol=0
    )


@pytest.mark.parametrize("shape", [(30, 41), (25, 25), (9, 10)])
def test_cards_that_say_center_go_on_as_they_were(zoo: Zoo, tmp_path: Path, shape: tuple[int, int]) -> None:
    old = {"input_size": (3, SIZE, SIZE), "resize": SIZE, "crop": "center"}
    run = make_run(tmp_path / "r", input_shape=(3, SIZE, SIZE))
    zoo.add(f"run:{run}", name="old", preprocessing=old)
    image = torch.from_numpy(pixels(1, 3, *shape))
    expected = F.center_crop(F.resize(image.float() / 255, [SIZE], antialias=True), [SIZE, SIZE])
    torch.testing.assert_close(zoo.load("old").preprocessing.apply(image), expected)


@pytest.mark.parametrize(
    "values",
    [
        {"input_size": (3, 8, 4)},
        {"input_size": (3, 8, 8), "resize": 8},
        {"input_size": (3, 8, 8), "interpolation": "bicubic"},
        {"input_size": (3, 8, 8), "antialias": False},
    ],
)
def test_a_square_is_resized_in_one_way(values: dict) -> None:
    with pytest.raises(
        ValidationError, match=r"crop 'square' .* leave resize, interpolation and antialias out"
    ):
        Preprocessing(crop="square", **values)


def folder(place: Path, mode: str) -> Task:
    """Pictures of many sizes, two kinds: dark on the left, dark on the right."""
    for number in range(40):
        height, width = SHAPES[number % len(SHAPES)]
        picture = pixels(height, width, 3, seed=number)
        side = slice(width // 2) if number % 2 else slice(width // 2, width)
        picture[:, side] //= 4
        target = place / ("train" if number < 24 else "test") / "lr"[number % 2]
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).convert(mode).save(target / f"{number:02}.png")
    return Task(place)


@pytest.fixture(scope="module", params=["RGB", "L"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Result]:
    place = tmp_path_factory.mktemp("square")
    task = folder(place / "photos", request.param)
    settings = {"epochs": 3, "image_size": SIZE, "out": place / "run", "device": "cpu"}
    return task, train(task, student="mlp-16", **settings)


def said(teacher: Teacher, task: Task) -> Tensor:
    return teacher.logits(teacher.preprocessing.apply(task.test.load(np.arange(len(task.test))))).softmax(1)


@pytest.mark.parametrize("source", ["run", "onnx"])
def test_a_student_in_the_zoo_says_what_its_run_says(trained, tmp_path: Path, zoo: Zoo, source: str) -> None:
    task, result = trained
    if source == "onnx":
        pytest.importorskip("onnxruntime")
        export(result.path, tmp_path / "a.onnx")
    zoo.add(f"run:{result.path}" if source == "run" else f"onnx:{tmp_path / 'a.onnx'}", name="t")
    expected = torch.from_numpy(split_probabilities(result.path, task.test))
    torch.testing.assert_close(said(zoo.load("t"), task), expected, rtol=0, atol=1e-6)


def test_a_finished_training_as_teacher_sees_what_it_was_trained_on(trained) -> None:
    task, result = trained
    given = as_given(result, None)
    inputs = given.preprocessing.apply(task.test.load(np.arange(len(task.test))))
    with torch.no_grad():
        came = result.model(inputs).softmax(1)
    expected = torch.from_numpy(split_probabilities(result.path, task.test))
    torch.testing.assert_close(came, expected, rtol=0, atol=1e-6)


def test_a_grey_student_in_the_zoo_says_of_colours_what_predict_says(
    trained, tmp_path: Path, zoo: Zoo
) -> None:
    _, result = trained
    zoo.add(f"run:{result.path}", name="t")
    colour = pixels(30, 41, 3)
    Image.fromarray(colour).save(tmp_path / "a.png")
    (expected,) = predict(result.path, [tmp_path / "a.png"])
    teacher = zoo.load("t")
    shares = teacher.logits(
        teacher.preprocessing.apply(torch.from_numpy(colour).permute(2, 0, 1)[None])
    ).softmax(1)
    told = dict(zip(expected.classes, expected.probabilities, strict=True))
    torch.testing.assert_close(shares[0], torch.tensor([told["l"], told["r"]]), rtol=0, atol=1e-6)
