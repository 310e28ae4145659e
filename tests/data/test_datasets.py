"""Tasks out of torch datasets: every kind of sample, read as files of a folder are."""

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task


class Pairs(torch.utils.data.Dataset):
    classes = ("cat", "dog")

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index], index % 2


def test_datasets_of_every_kind_of_sample():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    forms = [
        [Image.fromarray(image) for image in pixels],
        list(pixels),
        list(torch.from_numpy(pixels).permute(0, 3, 1, 2)),
        list(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255),
        list(pixels / 255),
    ]
    tasks = [Task.from_datasets(Pairs(form), Pairs(form)) for form in forms]
    assert {task.fingerprint for task in tasks} == {tasks[0].fingerprint}
    assert tasks[0].classes == ("cat", "dog")
    torch.testing.assert_close(tasks[0].train.load([1])[0], torch.from_numpy(pixels[1]).permute(2, 0, 1))
    vectors = Task.from_datasets(Pairs(list(torch.ones(4, 3))), Pairs(list(torch.ones(2, 3))), ["x", "y"])
    assert vectors.kind == "vectors"


@pytest.mark.parametrize(
    ("image", "suffix"),
    [
        (Image.fromarray(np.full((8, 8), 30_000, np.uint16)), "png"),
        (Image.new("RGBA", (8, 8), (0, 0, 0, 0)), "png"),
        (Image.new("LA", (8, 8), (0, 128)), "png"),
        (Image.new("1", (8, 8), 1), "png"),
        (Image.new("CMYK", (8, 8), (10, 20, 30, 40)), "tif"),
    ],
    ids=lambda value: getattr(value, "mode", value),
)
def test_an_image_of_pillow_is_read_as_its_file(tmp_path, image, suffix):
    for name in "ab":
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            image.save(tmp_path / part / name / f"x.{suffix}")
    of_files, of_images = Task(tmp_path), Task.from_datasets(Pairs([image] * 2), Pairs([image] * 2))
    torch.testing.assert_close(of_images.train.load([0]), of_files.train.load([0]))


def test_an_opened_file_is_turned_and_scaled_as_in_a_folder(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.new("RGB", (5, 3)).save(tmp_path / "x.jpg", exif=exif)
    (tmp_path / "x.pgm").write_bytes(b"P2\n1 1\n4095\n2048\n")
    turned, deep = (
        Task.from_datasets(*[Pairs([Image.open(tmp_path / name)] * 2)] * 2) for name in ("x.jpg", "x.pgm")
    )
    assert turned.train.image_shape == (3, 5, 3)
    assert deep.train.load([0]).tolist() == [[[[128]]]]


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_an_image_of_pillow_with_32_bits_is_refused(kind):
    images = Pairs([Image.fromarray(np.full((8, 8), 300, kind))] * 2)
    with pytest.raises(
        PreceptorError, match=r"^train sample 0 cannot be read as an image \(its pixels are 32-bit"
    ):
        Task.from_datasets(images, images)


@pytest.mark.parametrize(("kind", "first"), [(torch.from_numpy, True), (np.asarray, False)])
@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 8, 3), (3, 8, 3), (1, 1, 1)])
def test_where_both_ends_may_be_channels_the_type_decides(shape, kind, first):
    pixels = np.arange(4 * np.prod(shape), dtype=np.uint8).reshape(4, *shape)
    wanted = pixels if first else pixels.transpose(0, 3, 1, 2)
    given = kind(pixels)
    pairs = Pairs(list(given))
    for task in (Task.from_arrays(given, [0, 1] * 2, given, [0, 1] * 2), Task.from_datasets(pairs, pairs)):
        np.testing.assert_array_equal(task.train.load(slice(None)).numpy(), wanted)


@pytest.mark.parametrize("sample", [torch.ones(3), torch.ones(3, 8, 8)])
def test_a_loader_is_refused_for_its_dataset(sample):
    pairs = Pairs([sample] * 4)
    for batch in (1, 4, None):
        loader = torch.utils.data.DataLoader(pairs, batch_size=batch)
        with pytest.raises(
            PreceptorError, match=r"a DataLoader came as the train data.*; give the dataset itself"
        ):
            Task.from_datasets(loader, pairs)
        with pytest.raises(PreceptorError, match="a DataLoader came as the test data"):
            Task.from_datasets(pairs, loader)


def test_datasets_of_several_sizes():
    images = [np.full((4 + index, 5, 3), index, dtype=np.uint8) for index in range(4)]
    task = Task.from_datasets(Pairs(images), Pairs(images))
    assert not task.train.uniform
    assert task.train.image_shape is None
    assert [tuple(image.shape) for image in task.train.load([0, 3])] == [(3, 4, 5), (3, 7, 5)]
    assert task.fingerprint == Task.from_datasets(Pairs(images), Pairs(images)).fingerprint


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "the train dataset is empty"),
        ([np.ones((3, 3)) * 2] * 2, "outside \\[0, 1\\]; take the normalisation out"),
        ([np.full((3, 3), np.nan)] * 2, "^train sample 0 has NaN or infinite values; clean the images first"),
        (
            [torch.full((3, 4, 4), torch.inf)] * 2,
            "^train sample 0 has NaN or infinite values; clean the images",
        ),
        (
            [np.zeros((2, 4, 4, 3), np.uint8)] * 2,
            r"sample 0 has shape \(2, 4, 4, 3\), expected one image \(H, W, C\)",
        ),
        ([np.ones(3), np.ones(4)], "vectors need one length"),
        ([np.zeros((4, 4), np.uint8), np.zeros((4, 5, 3), np.uint8)], "mixes grey and colour"),
    ],
)
def test_wrong_datasets(samples, message):
    with pytest.raises(PreceptorError, match=message):
        Task.from_datasets(Pairs(samples), Pairs(samples))
    with pytest.raises(PreceptorError, match=r"expected \(sample, label\)"):
        Task.from_datasets([np.ones(3)], [])


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            1.9,
            "the label of train sample 0 holds float64, expected integers that count from 0; convert the labels",
        ),
        ("cat", "the label of train sample 0 holds <U3, expected integers"),
        (
            torch.tensor([0, 1, 0]),
            r"the label of train sample 0 has shape \(3,\), expected \(1,\): one label",
        ),
        (torch.tensor(1.0, dtype=torch.bfloat16), "the label of train sample 0 holds float32"),
    ],
)
def test_labels_of_a_dataset_are_whole_numbers(label, message):
    pairs = [(np.ones(3), label), (np.ones(3), 0)]
    with pytest.raises(PreceptorError, match=message):
        Task.from_datasets(pairs, pairs)


def test_labels_of_a_dataset_come_in_any_integer_form():
    pairs = [(np.ones(3), label) for label in (1, np.int8(0), torch.tensor(2), torch.tensor([1]))]
    np.testing.assert_array_equal(Task.from_datasets(pairs, pairs).train.labels, [1, 0, 2, 1])
