import hashlib

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data.task import never_held_out
from preceptor.data.unlabelled import read_unlabelled


def arrays(count=12, classes=3, shape=(5, 4, 3), seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
    return images, np.arange(count) % classes


@pytest.fixture
def task():
    train_x, train_y = arrays(30, 5)
    test_x, test_y = arrays(10, 5, seed=1)
    return Task.from_arrays(train_x, train_y, test_x, test_y, list("abcde"), name="toy")


def test_arrays_keep_their_pixels(task):
    train_x, train_y = arrays(30, 5)
    assert (task.name, task.kind, task.classes) == ("toy", "images", tuple("abcde"))
    assert len(task.train) == 30
    assert task.train.uniform
    assert task.train.image_shape == (3, 5, 4)
    assert task.train.path(0) is None
    got = task.train.load([4, 2])
    assert got.dtype == torch.uint8
    torch.testing.assert_close(got, torch.from_numpy(train_x[[4, 2]].transpose(0, 3, 1, 2).copy()))
    np.testing.assert_array_equal(task.train.labels, train_y)
    assert task.train.labels.dtype == np.int64
    assert task.bad_images == ()
    assert repr(task) == "Task('toy': 5 classes, 30 + 10 images)"


def test_grey_and_channels_first_arrays_mean_the_same():
    grey, labels = arrays(shape=(5, 4))
    one, _ = arrays(shape=(5, 4))
    first = Task.from_arrays(grey, labels, grey, labels, list("abc"))
    last = Task.from_arrays(
        one[..., None], labels, torch.from_numpy(one)[:, None], torch.tensor(labels), list("abc")
    )
    assert first.fingerprint == last.fingerprint
    assert first.train.image_shape == (1, 5, 4)


def test_a_shape_that_leaves_one_reading_is_read_so_whatever_the_type():
    pixels, labels = arrays(shape=(5, 4, 3))
    first = pixels.transpose(0, 3, 1, 2)
    forms = [form for array in (pixels, first) for form in (array, torch.from_numpy(array.copy()))]
    tasks = [Task.from_arrays(form, labels, form, labels) for form in forms]
    assert {task.fingerprint for task in tasks} == {tasks[0].fingerprint}


def test_vectors():
    x = np.random.default_rng(0).normal(size=(9, 4))
    task = Task.from_arrays(x, np.arange(9) % 3, x, np.arange(9) % 3)
    assert task.kind == "vectors"
    assert task.classes == ("0", "1", "2")
    assert task.train.image_shape is None
    torch.testing.assert_close(task.train.load([1]), torch.from_numpy(x[1:2]).float())


def test_subset_takes_classes_in_the_given_order(task):
    small = task.subset(["d", "a"])
    assert small.classes == ("d", "a")
    assert len(small.train) == 12
    kept = np.flatnonzero(np.isin(task.train.labels, [0, 3]))
    torch.testing.assert_close(small.train.load(slice(None)), task.train.load(kept))
    np.testing.assert_array_equal(small.train.labels, np.where(task.train.labels[kept] == 3, 0, 1))
    with pytest.raises(PreceptorError, match="no class 'z'; there are 'a', 'b'"):
        task.subset(["a", "z"])
    with pytest.raises(PreceptorError, match="name one twice"):
        task.subset(["a", "a"])
    with pytest.raises(PreceptorError, match="has 1 class"):
        task.subset(["a"])


def test_names_with_commas_are_told_apart():
    task = Task.from_arrays(*arrays(4, 2), *arrays(4, 2), ["blue, big", "red"])
    with pytest.raises(PreceptorError, match=r"no class 'blue, bi'; did you mean 'blue, big'\?"):
        task.subset(["blue, bi", "red"])


def test_window_is_the_protocols_window(task):
    from preceptor.data import sliding_windows

    second = sliding_windows(5, 2, 2, seed=9)[1]
    assert task.window(2, 2, 9).classes == tuple("abcde"[index] for index in second)
    assert task.window(2, 2, 9).name == "toy[2:2@9]"
    assert task.window(1, 2).classes == ("b", "c")


def test_few_samples(task):
    assert np.bincount(task.per_class(2, seed=0).train.labels).tolist() == [2] * 5
    assert len(task.sample(7, seed=0).train) == 7
    assert len(task.per_class(2).test) == 10
    smaller, validation = task.split_validation(1 / 3, seed=0)
    assert (len(smaller.train), len(validation)) == (20, 10)
    rows = {row.tobytes() for split in (smaller.train, validation) for row in split.load(slice(None)).numpy()}
    assert rows == {row.tobytes() for row in task.train.load(slice(None)).numpy()}


def test_a_class_with_one_sample_stays_in_training(task):
    pixels, labels = arrays(30, 5)
    rows = np.flatnonzero((labels != 3) | (np.arange(30) == np.argmax(labels == 3)))
    lone = Task.from_arrays(pixels[rows], labels[rows], *arrays(10, 5, seed=1), list("abcde"))
    smaller, validation = lone.split_validation(1 / 3, seed=0)
    assert np.bincount(smaller.train.labels).tolist() == [4, 4, 4, 1, 4]
    assert np.bincount(validation.labels, minlength=5).tolist() == [2, 2, 2, 0, 2]
    whole = task.split_validation(1 / 3, seed=0)[1]
    for label in (0, 1, 2, 4):
        both = [split.load(np.flatnonzero(split.labels == label)) for split in (whole, validation)]
        torch.testing.assert_close(*both, msg="the other classes are parted as before")
    assert never_held_out(task) == []
    assert never_held_out(lone) == [
        "class 'd' has a single training image: it stays in training, and none is held out to judge by"
    ]


def test_where_every_class_has_one_sample_nothing_can_be_held_out():
    single = Task.from_arrays(*arrays(5, 5), *arrays(10, 5, seed=1), list("abcde"), name="five")
    with pytest.raises(
        PreceptorError, match=r"five has a single training sample of each class.*; give one or more"
    ):
        single.split_validation(0.5)
    assert never_held_out(single)[0].startswith(
        "5 classes ('a', 'b', 'c' and 2 more) have a single training image each"
    )


def test_fingerprint_follows_content_only(task):
    again = Task.from_arrays(*arrays(30, 5), *arrays(10, 5, seed=1), list("abcde"), name="other name")
    assert task.fingerprint == again.fingerprint
    assert len(task.fingerprint) == 64
    pixels, labels = arrays(30, 5)
    changed = pixels.copy()
    changed[29, 4, 3, 2] ^= 1
    test = arrays(10, 5, seed=1)
    others = [
        Task.from_arrays(changed, labels, *test, list("abcde")),
        Task.from_arrays(pixels, labels, *test, list("abcdf")),
        Task.from_arrays(pixels, np.roll(labels, 1), *test, list("abcde")),
        task.subset(["a", "b"]),
        task.per_class(3),
    ]
    assert len({task.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert task.subset(list("abcde")).fingerprint == task.fingerprint


X, Y = arrays()


@pytest.mark.parametrize(
    ("train_x", "train_y", "test_x", "test_y", "classes", "message"),
    [
        (X, Y + 1, X, Y, "abc", "train labels from 1 to 3 for 3 classes; expected 0 to 2"),
        (X, Y, X, Y - 1, "abc", "test labels from -1 to 1"),
        (X, Y[:5], X, Y, "abc", r"train_y has shape \(5,\), expected \(12,\)"),
        (X, Y.astype(float), X, Y, "abc", "expected integers that count from 0"),
        (X, Y, X, Y, "abb", "empty or repeated class names"),
        (X, Y, X, Y, ["a", "", "b"], "empty or repeated class names"),
        (X, Y, X, Y, "abcd", "no train samples of class 'd'; add some or leave the class out"),
        (X, Y * 0, X, Y * 0, "a", r"has 1 class \('a'\); a task needs two or more"),
        (
            X,
            Y,
            X[:, :4],
            Y,
            "abc",
            r"train samples \(3, 5, 4\) and test samples \(3, 4, 4\); bring them to one shape",
        ),
        (X, Y, X[..., :1], Y, "abc", "bring them to one shape"),
        (X, Y, X[:0], Y[:0], "abc", "no test samples"),
        (X[:0], Y[:0], X, Y, "abc", "no train samples"),
        (X / 255, Y, X, Y, "abc", "images as float64, expected uint8 from 0 to 255"),
        (X[..., :2], Y, X, Y, "abc", "with 1 or 3 channels"),
        (X[:, 0, 0, 0], Y, X, Y, "abc", r"train_x has shape \(12,\), expected images"),
        (np.array(["a"] * 12), Y, X, Y, "abc", "holds <U1, expected numbers"),
        (np.full((12, 2), np.nan), Y, np.zeros((12, 2)), Y, "abc", "NaN or infinite values, first in row 0"),
    ],
)
def test_wrong_arrays_are_answered_with_what_to_do(train_x, train_y, test_x, test_y, classes, message):
    with pytest.raises(PreceptorError, match=message):
        Task.from_arrays(train_x, train_y, test_x, test_y, list(classes))


@pytest.mark.parametrize(
    "source",
    [(X, Y), X, None, b"data", TensorDataset(torch.zeros(2))],
    ids=lambda source: type(source).__name__,
)
def test_what_is_no_source_is_told_how_to_become_a_task(source):
    with pytest.raises(
        PreceptorError,
        match=f"^{type(source).__name__} came as data, .* Task.from_arrays, .* Task.from_datasets$",
    ):
        Task(source)
    with pytest.raises(PreceptorError, match="came as data, expected a path or a name"):
        read_unlabelled(source)


@pytest.mark.parametrize(
    "labels", [Y + 1, Y * 2, Y - 1, Y + 10**15], ids=["from 1", "gaps", "below 0", "ids"]
)
def test_labels_without_names_count_from_0_without_gaps(tmp_path, labels):
    low, high = labels.min(), labels.max()
    told = (
        f"has train labels from {low} to {high} for 3 classes without names; labels count from 0 without gaps"
    )
    with pytest.raises(PreceptorError, match=f"^arrays {told}"):
        Task.from_arrays(X, labels, X, labels)
    with pytest.raises(PreceptorError, match=f"^dataset {told}"):
        Task.from_datasets(*[list(zip(X, labels, strict=True))] * 2)
    np.savez(tmp_path / "a.npz", train_x=X, train_y=labels)
    with pytest.raises(PreceptorError, match=rf"a\.npz {told}"):
        Task(tmp_path / "a.npz")


def test_short_floats_of_torch():
    x, y = torch.randn(4, 3).bfloat16(), torch.tensor([0, 1, 0, 1])
    for task in (Task.from_arrays(x, y, x, y), Task.from_datasets(*[list(zip(x, y, strict=True))] * 2)):
        torch.testing.assert_close(task.train.load(slice(None)), x.float())
    images = torch.zeros(4, 3, 5, 5, dtype=torch.bfloat16)
    with pytest.raises(PreceptorError, match=r"train_x holds images as torch\.bfloat16, expected uint8"):
        Task.from_arrays(images, y, images, y)


def test_fingerprint_is_a_sha256_over_what_is_documented(task):
    def of(split):
        digest = hashlib.sha256(b"images" + split.labels.tobytes())
        digest.update(repr(("|u1", split.image_shape)).encode())
        digest.update(split.load(slice(None)).numpy().tobytes())
        return digest.hexdigest()

    wanted = hashlib.sha256(b"a\0b\0c\0d\0e\0" + f"{of(task.train)} {of(task.test)}".encode()).hexdigest()
    assert task.fingerprint == wanted


def test_a_class_with_a_comma_can_be_chosen(tmp_path):
    x, y = np.zeros((6, 8, 8), np.uint8), np.arange(6) % 3
    names = np.array(["salt, pepper", "oil", "rice"])
    np.savez(tmp_path / "a.npz", train_x=x, train_y=y, test_x=x, test_y=y, classes=names)
    assert Task(tmp_path / "a.npz", classes='oil,"salt, pepper"').classes == ("oil", "salt, pepper")


def test_class_names_in_bytes_are_text() -> None:
    labels = np.arange(4) % 2
    task = Task.from_arrays(
        np.zeros((4, 3)), labels, np.zeros((4, 3)), labels, [b"caf\xc3\xa9", np.str_("tea")]
    )
    assert task.classes == ("café", "tea")
