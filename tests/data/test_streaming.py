"""Images read from files while training goes on: the same batches, whatever reads them."""

import threading

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Loader, Task
from tests.data.batches import assert_same, batches


@pytest.fixture
def files(make_folder):
    """The training files of two classes with so many images each."""

    def make(first, second, **options):
        counts = {"train/a": first, "train/b": second, "test/a": 1, "test/b": 1}
        return Task(make_folder(counts, **options)).train

    return make


@pytest.mark.parametrize("augment", ["none", "pad-crop-flip"])
def test_files_of_several_sizes_stream_and_live_on_the_device_alike(files, augment):
    split = files(7, 6, size=lambda n: (14 + n, 26 - n))
    resident = Loader(split, 4, train=True, augment=augment, image_size=12)
    streamed = Loader(split, 4, train=True, augment=augment, image_size=12, resident_bytes=0)
    assert resident._home is not None
    assert streamed._home is None
    assert resident.input_shape == streamed.input_shape == (3, 12, 12)
    for one, two in zip(batches(resident), batches(streamed), strict=True):
        assert one.images.shape == (4, 3, 12, 12)
        assert one.indices.tolist() == two.indices.tolist()
        torch.testing.assert_close(one.images, two.images, rtol=0, atol=0)


def test_random_crops_are_the_same_streamed_and_on_the_device():
    def ramp(height, width):
        y, x = np.mgrid[:height, :width]
        return np.stack([255 * y / height, 255 * x / width, 127 + 0 * x], axis=2).astype(np.uint8)

    pairs = [(ramp(30 + 2 * index, 50 - 3 * index), index % 2) for index in range(9)]
    split = Task.from_datasets(pairs, pairs).train
    options = {"train": True, "augment": "random-resized-crop-flip", "image_size": 16}
    resident, streamed = Loader(split, 4, **options), Loader(split, 4, resident_bytes=0, **options)
    for one, two in zip(batches(resident), batches(streamed), strict=True):
        torch.testing.assert_close(one.images, two.images, rtol=0, atol=0.02)


def test_streaming_does_not_depend_on_the_number_of_threads_and_resumes(files, monkeypatch):
    split = files(9, 8, size=lambda n: (20 + n, 30 - n))

    def make():
        return Loader(
            split, 4, train=True, augment="random-resized-crop-flip", image_size=10, resident_bytes=0
        )

    first = batches(make())
    monkeypatch.setattr("preceptor.data.residence.workers", lambda: 1)
    assert_same(first, batches(make()))
    assert_same(first[2:], batches(make(), start=2))


def test_an_abandoned_stream_leaves_no_threads(files):
    before = threading.active_count()
    loader = Loader(files(20, 20), 4, train=True, resident_bytes=0)
    iterator = loader.epoch(0)
    next(iterator)
    iterator.close()
    for thread in threading.enumerate():
        if "ThreadPool" in thread.name:
            thread.join(5)
    assert threading.active_count() <= before


def test_a_file_that_vanishes_is_named(files, tmp_path):
    loader = Loader(files(2, 2), 4, train=True, resident_bytes=0)
    (tmp_path / "pets/train/b/001.png").write_bytes(b"gone")
    with pytest.raises(PreceptorError, match=r"train/b/001\.png cannot be read as an image"):
        batches(loader)
