import os
import pickle

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data.cifar import read_pickle
from tests.data.trap import SPRUNG, Trap


def write_cifar100(root, rows=6, protocol=2, **change):
    base = root / "cifar-100-python"
    base.mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (rows, 3072), dtype=np.uint8)
    content = {
        "data": pixels,
        "fine_labels": [i % 3 for i in range(rows)],
        "filenames": ["x.png"] * rows,
        **change,
    }
    for name in ("train", "test"):
        (base / name).write_bytes(pickle.dumps(content, protocol=protocol))
    (base / "meta").write_bytes(pickle.dumps({"fine_label_names": ["ape", "bee", "cow"]}, protocol=protocol))
    return pixels


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar100(tmp_path, protocol):
    pixels = write_cifar100(tmp_path, protocol=protocol)
    for root in (tmp_path, tmp_path / "cifar-100-python"):
        task = Task(f"cifar100:{root}")
        assert (task.name, task.classes) == ("cifar100", ("ape", "bee", "cow"))
        assert task.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
        torch.testing.assert_close(
            task.train.load([2])[0], torch.from_numpy(pixels[2].reshape(3, 32, 32).copy())
        )


def test_cifar10_agrees_with_torchvision(tmp_path):
    from torchvision.datasets import CIFAR10

    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        pixels = np.random.default_rng(number).integers(0, 256, (4, 3072), dtype=np.uint8)
        (base / name).write_bytes(pickle.dumps({"data": pixels, "labels": [0, 1, 2, 3]}, protocol=2))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcd")}, protocol=2))
    task = Task(f"cifar10:{tmp_path}")

    class Unchecked(CIFAR10):
        def _check_integrity(self):
            return True

        def _load_meta(self):
            self.classes = list("abcd")

    theirs = Unchecked(tmp_path)
    np.testing.assert_array_equal(task.train.load(slice(None)).permute(0, 2, 3, 1).numpy(), theirs.data)
    assert task.train.labels.tolist() == theirs.targets
    assert len(task.test) == 4


def test_pickle_of_python_2_is_read(tmp_path):
    """The published files: protocol 2 of Python 2, where bytes are short strings and flags are integers."""
    raw = bytes(range(250, 256)) + b"\x00\x80"
    stream = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x04\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x08" + raw + b"tbU\x06labels](K\x01K\x02eu."
    )
    (tmp_path / "batch").write_bytes(stream)
    content = read_pickle(tmp_path / "batch")
    np.testing.assert_array_equal(content["data"], np.frombuffer(raw, np.uint8).reshape(2, 4))
    assert content["labels"] == [1, 2]


@pytest.mark.parametrize(
    "content",
    [
        {"data": Trap()},
        {"data": np.array([Trap(), 1], dtype=object)},
        {"data": np.array(["text"])},
        {"data": np.zeros(2, dtype=[("a", "u1"), ("b", "O")])},
        {"data": torch.nn.Linear},
        {"data": eval},
    ],
)
def test_pickles_that_would_run_code_are_refused_and_not_run(tmp_path, content):
    (tmp_path / "evil").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(PreceptorError, match=r"is not a plain CIFAR file .*nothing in it was run"):
        read_pickle(tmp_path / "evil")
    assert not os.path.exists(SPRUNG)


@pytest.mark.parametrize(
    "stream",
    [
        b"cos\nsystem\n(S'touch /tmp/preceptor-was-fooled'\ntR.",
        b"\x80\x02c__builtin__\neval\nU\x011\x85R.",
        b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7ft\x85R.",
        b"\x80\x04\x8c\x05numpy\x8c\x11core.multiarray.x\x93.",
        b"rubbish",
        b"",
    ],
)
def test_hostile_streams(tmp_path, stream):
    (tmp_path / "evil").write_bytes(stream)
    with pytest.raises(PreceptorError, match="is not a plain CIFAR file"):
        read_pickle(tmp_path / "evil")
    assert not os.path.exists(SPRUNG)


def test_wrong_cifar_folders(tmp_path):
    with pytest.raises(
        PreceptorError, match="has no train, test, meta; give the folder that holds cifar-100-python/"
    ):
        Task(f"cifar100:{tmp_path}")
    write_cifar100(tmp_path, fine_labels=[0])
    with pytest.raises(PreceptorError, match="does not hold uint8 'data'"):
        Task(f"cifar100:{tmp_path}")
    write_cifar100(tmp_path, fine_labels=["a"] * 6)
    with pytest.raises(PreceptorError, match="that are no integers"):
        Task(f"cifar100:{tmp_path}")
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps([1]))
    with pytest.raises(PreceptorError, match="holds a list, expected a dict"):
        Task(f"cifar100:{tmp_path}")
