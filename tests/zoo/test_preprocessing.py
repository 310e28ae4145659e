"""Images reach a teacher as its own framework would have prepared them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import timm.data
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from preceptor.core import PreceptorError
from preceptor.zoo import Preprocessing
from preceptor.zoo.preprocessing import as_preprocessing
from preceptor.zoo.sources.timm import _preprocessing as timm_preprocessing
from preceptor.zoo.sources.torchvision import _preprocessing as torchvision_preprocessing
from tests.zoo.conftest import smooth_image

GREY = Preprocessing(input_size=(1, 4, 4))


def tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)


@pytest.mark.parametrize("shape", [(300, 260), (200, 400), (224, 224), (90, 70)])
@pytest.mark.parametrize("arch", ["resnet18", "test_vit", "mobilenetv3_small_050"])
def test_like_timm(arch: str, shape: tuple[int, int]) -> None:
    model = timm.create_model(arch)
    pixels = smooth_image(*shape)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    came = timm_preprocessing(model).apply([tensor(pixels)])[0]
    # One step of 8 bits apart: PIL rounds between its passes. Divided by the smallest std.
    torch.testing.assert_close(came, transform(Image.fromarray(pixels)), atol=2 / 255 / 0.224, rtol=0)


@pytest.mark.parametrize(
    "weights",
    [torchvision.models.ResNet18_Weights.DEFAULT, torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V2],
)
def test_like_torchvision(weights: torchvision.models.WeightsEnum) -> None:
    pixels = tensor(smooth_image(300, 260))
    came = torchvision_preprocessing(weights).apply(pixels[None])
    torch.testing.assert_close(came[0], weights.transforms()(pixels), atol=1 / 255 / 0.224, rtol=0)


def test_formula() -> None:
    """At the right size already, it is (x / 255 - mean) / std and nothing else."""
    preprocessing = Preprocessing.for_size((3, 6, 6), (0.1, 0.2, 0.3), (0.5, 0.25, 2))
    pixels = torch.randint(0, 256, (2, 3, 6, 6), dtype=torch.uint8)
    expected = (pixels.numpy() / 255 - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape(
        [0.5, 0.25, 2], (3, 1, 1)
    )
    np.testing.assert_allclose(preprocessing.apply(pixels).numpy(), expected, atol=1e-6)
    torch.testing.assert_close(preprocessing.apply(pixels.float() / 255), preprocessing.apply(pixels))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(4, 20), st.integers(4, 20)), min_size=1, max_size=6))
def test_a_list_is_its_images_one_by_one_in_order(shapes: list[tuple[int, int]]) -> None:
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=generator) for shape in shapes]
    preprocessing = Preprocessing.for_size((3, 8, 8), (0.5,) * 3, (0.5,) * 3)
    together = preprocessing.apply(images)
    for image, row in zip(images, together, strict=True):
        torch.testing.assert_close(preprocessing.apply(image[None])[0], row)


def test_squash_and_center_differ_as_they_should() -> None:
    image = torch.zeros(1, 3, 8, 16)
    image[..., 4:12] = 1
    common = {"input_size": (3, 8, 8)}
    assert Preprocessing(**common, resize=8, crop="center").apply(image).min() == 1
    assert Preprocessing(**common, crop="squash").apply(image).min() == 0


def test_bicubic_does_not_leave_the_range_of_images() -> None:
    image = (torch.rand(1, 3, 9, 9) > 0.5).float()
    came = Preprocessing(input_size=(3, 20, 20), crop="squash", interpolation="bicubic").apply(image)
    assert 0 <= came.min() <= came.max() <= 1


def test_grey_and_colour() -> None:
    grey = torch.rand(2, 1, 4, 4)
    colour = Preprocessing(input_size=(3, 4, 4)).apply(grey)
    torch.testing.assert_close(colour, grey.repeat(1, 3, 1, 1))
    torch.testing.assert_close(GREY.apply(colour), grey, atol=2e-4, rtol=1e-3)
    with pytest.raises(PreceptorError, match="images with 4 channels came; this teacher takes 1"):
        GREY.apply(torch.rand(1, 4, 4, 4))


def test_vectors() -> None:
    vectors = torch.randn(3, 2)
    preprocessing = Preprocessing(input_size=(2,), mean=(1, 2), std=(2, 4))
    torch.testing.assert_close(
        preprocessing.apply(vectors), (vectors - torch.tensor([1.0, 2])) / torch.tensor([2.0, 4])
    )
    with pytest.raises(PreceptorError, match=r"shape \(3, 5\) came; this teacher takes vectors of 2"):
        preprocessing.apply(torch.randn(3, 5))
    with pytest.raises(PreceptorError, match="takes vectors of 2"):
        preprocessing.apply(torch.randn(3, 3, 4, 4))
    with pytest.raises(PreceptorError, match=r"takes images \(B, 1, height, width\)"):
        GREY.apply(vectors)


def test_wrong_size_without_a_crop_is_refused() -> None:
    with pytest.raises(PreceptorError, match="images of 5x6 came; this teacher takes 4x4"):
        GREY.apply(torch.rand(1, 1, 5, 6))
    with pytest.raises(PreceptorError, match="no images came"):
        GREY.apply([])


@pytest.mark.parametrize("crop", ["none", "square"])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.full((1, 1, 4, 4), 255),
            r"images of torch\.int64 came; expected uint8 from 0 to 255, or floats",
        ),
        (torch.full((1, 1, 4, 4), 3, dtype=torch.int8), r"images of torch\.int8 came"),
        (torch.full((1, 1, 4, 4), 255.0), "float images with values up to 255 came.*divide them by 255"),
    ],
)
def test_images_in_another_range_are_refused(images: torch.Tensor, message: str, crop: str) -> None:
    preprocessing = Preprocessing(input_size=(1, 4, 4), crop=crop)  # type: ignore[arg-type]
    for given_as in (images, list(images)):
        with pytest.raises(PreceptorError, match=message):
            preprocessing.apply(given_as)
    preprocessing.apply(torch.full((1, 1, 4, 4), 1.5))  # resizing and noise may add a little


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"input_size": (3, 10**6, 10**6)}, "out of bounds"),
        ({"input_size": (3, 0, 5)}, "out of bounds"),
        ({"input_size": (3, 4)}, "input_size"),
        ({"input_size": (3, 4, 4), "resize": 10**6}, "resize"),
        ({"input_size": (3, 4, 4), "mean": (0.5,)}, "mean has 1 numbers for 3 channels"),
        ({"input_size": (3, 4, 4), "std": (1, 1, 0)}, "std must be above 0"),
        ({"input_size": (3, 4, 4), "mean": (0, 0, float("nan"))}, "mean"),
        ({"input_size": (3, 4, 4), "interpolation": "lanczos"}, "interpolation"),
        ({"input_size": (3, 4, 4), "crop": "five"}, "crop"),
        ({"input_size": (4,), "resize": 3}, "can be neither resized nor cropped"),
        ({"input_size": (4,), "colour": "red"}, "colour"),
    ],
)
def test_nonsense_is_refused(values: dict, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Preprocessing(**values)
    with pytest.raises(PreceptorError, match="the preprocessing is not valid") as refused:
        as_preprocessing(values)
    assert "Value error" not in str(refused.value)
    assert "tuple[" not in str(refused.value)


def test_survives_json() -> None:
    preprocessing = Preprocessing.for_size((3, 8, 4), (0.1, 0.2, 0.3), (1, 2, 3))
    assert Preprocessing.model_validate(json.loads(preprocessing.model_dump_json())) == preprocessing
    assert preprocessing.crop == "squash"
