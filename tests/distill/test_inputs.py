"""Mean and deviation of the inputs: in whatever unit they come, on however many threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data.split import ArrayStore, Split
from preceptor.data.task import Task
from preceptor.distill.inputs import InputSpec, Normalise, input_spec
from preceptor.distill.train import train
from tests.distill.toys import vector_task

QUICK = {"student": "mlp-8", "recipe": "quick", "epochs": 12, "batch_size": 16, "progress": False}
MIXED = np.array([1e-8, 1e8, 1.0, 1e-30, 1e12, 1e-3])


def scaled_task(scale: float | np.ndarray) -> Task:
    task = vector_task()
    parts = ((task.train, task.train.labels), (task.test, task.test.labels))
    arrays = [(split.load(slice(None)).numpy() * scale, labels) for split, labels in parts]
    return Task.from_arrays(*arrays[0], *arrays[1], task.classes)


def spec_of(values: np.ndarray) -> InputSpec:
    """Of a split with these vectors (N, d) or uint8 images (N, C, H, W)."""
    kept = values if values.ndim == 4 else values.astype(np.float32)
    split = Split(ArrayStore(kept), np.zeros(len(kept), dtype=np.int64))
    return input_spec(split, split.kind, None)


@pytest.mark.parametrize("augment", ["none", "noise"])
@pytest.mark.parametrize("scale", [1e-8, 1e8, MIXED], ids=["1e-8", "1e8", "mixed"])
def test_the_unit_of_a_column_changes_nothing(scale: float | np.ndarray, augment: str) -> None:
    wanted = train(scaled_task(1.0), augment=augment, **QUICK)
    found = train(scaled_task(scale), augment=augment, **QUICK)
    assert found.accuracy == wanted.accuracy
    assert found.accuracy > 0.8
    losses = [[epoch["loss"] for epoch in result.history] for result in (found, wanted)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("size", [1e-8, 1.0, 3e6, 1e12])
def test_a_constant_column_and_one_of_rounding_alone_give_next_to_nothing(size: float) -> None:
    size = float(np.float32(size))
    random = np.random.default_rng(0)
    columns = np.full((200, 3), size)
    columns[:, 1] = np.nextafter(np.float32(size), np.float32(np.inf), dtype=np.float32)
    columns[::2, 1] = size
    columns[:, 2] = size + 1e-9 * size * random.normal(size=200)  # below what float32 can tell apart
    spec = spec_of(columns)
    seen = Normalise(spec)(torch.from_numpy(columns.astype(np.float32)))
    assert seen.abs().max() < 1e-6
    assert Normalise(spec)(torch.full((1, 3), 2 * size)).abs().max() < 2, "another value is not blown up"


def test_what_float32_can_tell_apart_on_an_offset_is_standardised() -> None:
    columns = 1e6 + np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 100.0]
    seen = Normalise(spec_of(columns))(torch.from_numpy(columns.astype(np.float32)))
    np.testing.assert_allclose(seen.std(0, correction=0), 1, rtol=1e-2)
    np.testing.assert_allclose(seen.mean(0), 0, atol=0.1)


def test_columns_of_zeros_and_of_the_smallest_numbers_are_left_as_they_are() -> None:
    columns = np.zeros((4, 2))
    columns[0, 1] = 1e-44
    assert spec_of(columns).std == (1.0, 1.0)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_mean_and_deviation_do_not_depend_on_the_number_of_threads(threads: Callable[[int], None]) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (3000, 1, 24, 24), dtype=np.uint8)
    vectors = random.normal(size=(100_000, 1)).astype(np.float32)
    found = []
    for count in (1, 2, 3, 4):
        threads(count)
        found.append((spec_of(pixels), spec_of(vectors)))
    assert all(specs == found[0] for specs in found)


def test_pixel_statistics_are_exact() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2100, 2, 3, 5), dtype=np.uint8)
    pixels[:, 1] = 255
    spec = spec_of(pixels)
    values = [Fraction(int(value), 255) for value in pixels[:, 0].ravel()]
    mean = sum(values) / len(values)
    variance = sum(value**2 for value in values) / len(values) - mean**2
    assert spec.mean == (float(mean), 1.0)
    np.testing.assert_allclose(spec.std, (math.sqrt(variance), 1.0), rtol=1e-15)


def test_a_seed_below_0_is_refused_in_a_sentence() -> None:
    with pytest.raises(PreceptorError, match="seed -1 came; expected a whole number of 0 or more"):
        train(vector_task(), mixup=1.0, seed=-1, **QUICK)


def test_pixels_are_scaled_as_the_loader_does_and_other_integers_refused() -> None:
    pixels = torch.randint(0, 256, (3, 1, 4, 4), dtype=torch.uint8)
    normalise = Normalise(InputSpec((1, 4, 4), (0.25,), (0.5,)))
    torch.testing.assert_close(normalise(pixels), (pixels.float() / 255 - 0.25) / 0.5, rtol=0, atol=0)
    with pytest.raises(PreceptorError, match=r"inputs of torch.int64 came; floats in \[0, 1\] or uint8 were"):
        normalise(pixels.long())
    vectors = Normalise(InputSpec((2,), (0.0, 0.0), (1.0, 1.0)))
    with pytest.raises(PreceptorError, match=r"inputs of torch.uint8 came; floats were expected"):
        vectors(torch.zeros(3, 2, dtype=torch.uint8))
