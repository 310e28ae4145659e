import os

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data.unlabelled import read_unlabelled
from tests.data.trap import SPRUNG, Trap


def npz(path, **change):
    generator = np.random.default_rng(0)
    content = {
        "train_x": generator.integers(0, 256, (12, 5, 4, 3), dtype=np.uint8),
        "train_y": np.arange(12) % 3,
        "test_x": generator.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
        "test_y": np.arange(6) % 3,
        "classes": np.array(["ape", "bee", "cow"]),
    }
    content.update(change)
    np.savez_compressed(path, **{key: value for key, value in content.items() if value is not None})
    return path, content


def test_npz_of_images(tmp_path):
    path, content = npz(tmp_path / "toy.npz")
    task = Task(path)
    assert (task.name, task.classes, len(task.test)) == ("toy", ("ape", "bee", "cow"), 6)
    torch.testing.assert_close(
        task.train.load([3])[0], torch.from_numpy(content["train_x"][3]).permute(2, 0, 1)
    )
    assert Task(path, classes="cow,ape").classes == ("cow", "ape")
    assert Task(path, window="0:2").classes == ("ape", "bee")


def test_an_ending_in_capitals_is_the_same_ending(tmp_path):
    path, content = npz(tmp_path / "data.npz")
    path.rename(tmp_path / "DATA.NPZ")
    assert len(Task(tmp_path / "DATA.NPZ").train) == len(content["train_x"])
    assert len(read_unlabelled(tmp_path / "DATA.NPZ")[0]) == len(content["train_x"])


def test_npz_without_test_or_names_and_with_vectors(tmp_path):
    path, _ = npz(tmp_path / "a.npz", test_x=None, test_y=None, classes=None)
    task = Task(path)
    assert task.classes == ("0", "1", "2")
    assert (len(task.train), len(task.test)) == (9, 3)
    path, _ = npz(
        tmp_path / "b.npz",
        train_x=np.ones((12, 7)),
        test_x=np.ones((6, 7)),
        classes=np.array([b"x", b"y", b"z"]),
    )
    task = Task(path)
    assert task.kind == "vectors"
    assert task.classes == ("x", "y", "z")


def test_validation_arrays_stand_in_for_test_arrays_as_in_folders(tmp_path):
    held = {"val_x": np.full((3, 5, 4, 3), 7, np.uint8), "val_y": np.arange(3)}
    task = Task(npz(tmp_path / "a.npz", test_x=None, test_y=None, **held)[0])
    assert (len(task.train), len(task.test)) == (12, 3)
    assert (task.test.load([1]) == 7).all()
    assert len(Task(npz(tmp_path / "b.npz", **held)[0]).test) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_x": None}, "but no train_x; expected train_x, train_y"),
        ({"test_y": None}, "only one of test_x and test_y"),
        ({"val_x": np.zeros((6, 5, 4, 3), np.uint8)}, "only one of val_x and val_y"),
        (
            {"train_x": np.full((12, 2), 1e300)},
            "train_x has numbers too large for float32, first in row 0; scale its columns down",
        ),
        ({"train_x": np.full((12, 2), np.nan)}, "train_x has NaN or infinite values, first in row 0; clean"),
        ({"classes": np.array(["a", "b", "c"], dtype=object)}, "without object arrays"),
        ({"classes": np.array([Trap()], dtype=object)}, "without object arrays"),
        ({"classes": np.zeros(3)}, "expected a list of strings"),
        (
            {"classes": np.array([b"\xe9", b"b", b"c"])},
            r"classes in .*toy\.npz has b'\\xe9', which is not UTF-8; write the names as text",
        ),
        ({"classes": np.array(["\ud800", "b", "c"])}, r"has '\\ud800', which is not UTF-8"),
        ({"train_y": np.arange(12)}, "train labels from 0 to 11 for 3 classes"),
        ({"test_x": np.zeros((6, 4, 4, 3), np.uint8)}, "bring them to one shape"),
    ],
)
def test_wrong_npz(tmp_path, change, message):
    path, _ = npz(tmp_path / "toy.npz", **change)
    with pytest.raises(PreceptorError, match=message):
        Task(path)
    assert not os.path.exists(SPRUNG)


def test_damaged_npz(tmp_path, monkeypatch):
    path, _ = npz(tmp_path / "toy.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(PreceptorError, match=r"cannot be read as an .npz of plain arrays"):
        Task(path)
    path.write_bytes(whole)
    monkeypatch.setattr("preceptor.data.arrays.MAX_NPZ_BYTES", 100)
    with pytest.raises(PreceptorError, match="the limit is 100; split it up"):
        Task(path)


def test_npz_that_promises_more_than_it_holds(tmp_path):
    import io
    import zipfile

    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("train_x.npy", stream.getvalue() + b"123")
    with pytest.raises(PreceptorError, match="promises 10000000000000 bytes"):
        Task(tmp_path / "lie.npz")


def test_arrays_without_samples_are_called_so(tmp_path):
    np.savez(tmp_path / "a.npz", train_x=np.zeros((0, 3), np.float32), train_y=np.zeros(0, int))
    with pytest.raises(PreceptorError, match="train_x is empty: there are no train samples; add some"):
        Task(tmp_path / "a.npz")
