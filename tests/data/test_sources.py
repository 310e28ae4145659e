import os
import pickle
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data import images as images_module
from preceptor.data.cifar import read_pickle

LAYOUT = {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1}


# Folders


def test_folder_with_train_and_test(make_folder):
    root = make_folder(LAYOUT)
    task = Task(root)
    assert (task.name, task.classes) == ("pets", ("cat", "dog"))
    assert (len(task.train), len(task.test)) == (5, 2)
    assert task.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert task.train.image_shape == (3, 6, 8)
    assert task.train.path(1) == str(root / "train" / "cat" / "001.png")
    wanted = np.asarray(Image.open(root / "train" / "cat" / "001.png")).transpose(2, 0, 1)
    torch.testing.assert_close(task.train.load([1]), torch.from_numpy(wanted.copy())[None])


def test_folder_with_val_and_other_files(make_folder):
    root = make_folder({"train/a": 2, "train/b/deeper": 2, "val/a": 1, "val/b": 1})
    (root / "train" / "a" / "notes.txt").write_text("no image")
    (root / "train" / ".hidden").mkdir()
    (root / "train" / "a" / "._000.png").write_bytes(b"left by a file manager")
    task = Task(root)
    assert (len(task.train), len(task.test)) == (4, 2)


def test_one_level_is_split_by_seed(make_folder):
    root = make_folder({"a": 8, "b": 4, "c": 2})
    task = Task(root, seed=3)
    assert np.bincount(task.test.labels).tolist() == [2, 1, 1]
    assert np.bincount(task.train.labels).tolist() == [6, 3, 1]

    def test_files(task):
        return [task.test.path(i) for i in range(len(task.test))]

    assert test_files(task) == test_files(Task(root, seed=3))
    assert test_files(task) != test_files(Task(root, seed=4))
    assert len(Task(root, seed=3, test_fraction=0.5).test) == 7


def test_classes_and_window_choose_before_reading(make_folder):
    root = make_folder({f"{part}/{name}": 2 for part in ("train", "test") for name in "abcd"})
    whole = Task(root)
    assert Task(root, classes="d, b").fingerprint == whole.subset(["d", "b"]).fingerprint
    assert Task(root, window="1:2@5").fingerprint == whole.window(1, 2, 5).fingerprint
    assert Task(root, window=(1, 2)).name == "pets[1:2]"
    (root / "train" / "a" / "000.png").write_bytes(b"damaged")
    assert Task(root, classes=["b", "c"]).bad_images == ()
    with pytest.raises(PreceptorError, match="choose the subset by one of them"):
        Task(root, classes="a,b", window="0:2")
    with pytest.raises(PreceptorError, match="no class 'x'"):
        Task(root, classes="a,x")


def test_fingerprint_of_a_folder_follows_paths_and_bytes(make_folder):
    first, second = Task(make_folder(LAYOUT)), Task(make_folder(LAYOUT, name="elsewhere"))
    assert first.fingerprint == second.fingerprint
    root = make_folder(LAYOUT, name="third")
    Image.new("RGB", (8, 6)).save(root / "test" / "dog" / "000.png")
    assert Task(root).fingerprint != first.fingerprint
    os.rename(root / "train" / "cat" / "000.png", root / "train" / "cat" / "zzz.png")
    assert Task(root).fingerprint not in (first.fingerprint, second.fingerprint)


def test_a_second_look_reads_nothing_and_a_changed_file_is_seen(make_folder, monkeypatch):
    root = make_folder(LAYOUT)
    before = Task(root).fingerprint
    monkeypatch.setattr("preceptor.data.scan.read_bytes", lambda path: pytest.fail(f"read {path} again"))
    assert Task(root).fingerprint == before
    monkeypatch.undo()
    os.utime(root / "train" / "cat" / "000.png", ns=(1, 1))
    assert Task(root).fingerprint == before


def test_a_damaged_scan_memory_is_not_trusted(make_folder):
    root = make_folder(LAYOUT)
    before = Task(root).fingerprint
    (memory,) = os.listdir(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans"))
    for rubbish in ("{", "[]", '{"schema": 1}', '{"schema": 1, "files": {"train/cat/000.png": [1]}}'):
        with open(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans", memory), "w") as stream:
            stream.write(rubbish)
        assert Task(root).fingerprint == before


def test_sizes_may_vary_and_grey_becomes_colour_beside_colour(make_folder):
    root = make_folder(LAYOUT, size=lambda number: (8 + number, 6))
    Image.new("L", (5, 4), 200).save(root / "train" / "cat" / "000.png")
    task = Task(root)
    assert not task.train.uniform
    loaded = task.train.load([0, 1])
    assert [tuple(image.shape) for image in loaded] == [(3, 4, 5), (3, 6, 10)]
    assert (loaded[0] == 200).all()
    grey = Task(make_folder(LAYOUT, mode="L", name="grey"))
    assert grey.train.image_shape == (1, 6, 8)


def test_grey_classes_alone_have_another_fingerprint_than_beside_colour(make_folder):
    root = make_folder({f"{part}/{name}": 2 for part in ("train", "test") for name in "ab"}, mode="L")
    make_folder({"train/c": 2, "test/c": 2})
    alone, beside = Task(root, classes="a,b"), Task(root).subset(["a", "b"])
    assert (alone.train.image_shape, beside.train.image_shape) == ((1, 6, 8), (3, 6, 8))
    assert alone.fingerprint != beside.fingerprint


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train/a": 1, "test/a": 1}, "has 1 class"),
        ({"train/a": 1, "train/b": 0, "test/a": 1}, r"train/b has no images \(\.bmp"),
        ({"train/a": 1, "train/b": 1}, "has train/ but neither test/ nor val/"),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/c": 1},
            "test has the class 'c' that .*train has not",
        ),
        ({"train/a": 1, "train/b": 1, "test/a": 0}, "no test samples"),
        ({"a": 4, "b": 1}, "'b' has 1 sample, too few to hold any out"),
    ],
)
def test_wrong_folders_are_answered_with_what_to_do(make_folder, counts, message):
    with pytest.raises(PreceptorError, match=message):
        Task(make_folder(counts))


def test_empty_and_missing_sources(tmp_path):
    with pytest.raises(
        PreceptorError, match="has no class folders; expected one folder of images for each class"
    ):
        Task(tmp_path)
    with pytest.raises(PreceptorError, match="does not exist; give a folder of class folders"):
        Task(tmp_path / "nowhere")
    (tmp_path / "data.csv").write_text("1,2")
    with pytest.raises(PreceptorError, match="not a form of data that is known; give a folder"):
        Task(str(tmp_path / "data.csv"))


# Damaged images


def test_bad_images_are_refused_or_named_and_skipped(make_folder):
    root = make_folder(LAYOUT)
    whole = (root / "train" / "cat" / "001.png").read_bytes()
    (root / "train" / "cat" / "001.png").write_bytes(whole[: len(whole) // 2])
    (root / "test" / "cat" / "000.png").write_bytes(b"")
    with pytest.raises(
        PreceptorError,
        match=r"2 of 7 images .* cannot be used: train/cat/001.png cannot be read as an image .*--on-bad-image skip",
    ):
        Task(root)
    task = Task(root, on_bad_image="skip")
    assert task.bad_images == ("train/cat/001.png", "test/cat/000.png")
    assert (len(task.train), len(task.test)) == (4, 1)
    assert [task.train.path(i)[-11:] for i in range(2)] == ["cat/000.png", "cat/002.png"]
    with pytest.raises(PreceptorError, match="use one of fail, skip"):
        Task(root, on_bad_image="ignore")


def test_skipping_a_whole_class_is_refused(make_folder):
    root = make_folder({"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    (root / "train" / "a" / "000.png").write_bytes(b"x")
    with pytest.raises(PreceptorError, match="no train samples of class 'a'"):
        Task(root, on_bad_image="skip")


def bomb(width, height):
    """A PNG of a few bytes that claims many pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])  # above our limit, Pillow's warning, Pillow's error
def test_decompression_bombs_are_refused_before_decoding(make_folder, side):
    root = make_folder(LAYOUT)
    (root / "train" / "dog" / "000.png").write_bytes(bomb(side, side))
    with pytest.raises(PreceptorError, match=r"1 of 7 images .*limit .*64000000.*; shrink it or remove it"):
        Task(root)
    assert Task(root, on_bad_image="skip").bad_images == ("train/dog/000.png",)


def test_sound_images_above_the_limit_are_refused(monkeypatch):
    content = encoded(Image.new("L", (8, 8)))
    assert images_module.decode(content, "x").shape == (1, 8, 8)
    monkeypatch.setattr(images_module, "MAX_PIXELS", 63)
    with pytest.raises(PreceptorError, match="x has 8 x 8 px, the limit is 63"):
        images_module.decode(content, "x")


def test_large_files_and_foreign_formats_are_refused(monkeypatch, tmp_path):
    with pytest.raises(PreceptorError, match="cannot be read as an image"):
        images_module.decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "x.png")
    with pytest.raises(PreceptorError, match="cannot be read as an image"):
        images_module.decode(encoded(Image.new("L", (8, 8)), "PCX"), "x.png")  # sound, but not on the list
    (tmp_path / "x.png").write_bytes(b"0" * 20)
    monkeypatch.setattr(images_module, "MAX_FILE_BYTES", 10)
    with pytest.raises(PreceptorError, match="has 20 bytes and the limit is 10"):
        images_module.read_bytes(tmp_path / "x.png")


def encoded(image, kind="PNG", **options):
    import io

    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_transparency_orientation_palettes_and_depth():
    clear = Image.new("RGBA", (2, 3), (255, 0, 0, 0))
    assert (images_module.decode(encoded(clear), "x") == 255).all()
    palette = Image.new("P", (2, 3))
    palette.info["transparency"] = b"\x00"
    assert images_module.decode(encoded(palette, transparency=b"\x00"), "x").shape == (3, 3, 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    assert images_module.decode(encoded(Image.new("RGB", (2, 3)), "JPEG", exif=exif), "x").shape == (3, 2, 3)
    deep = Image.fromarray(np.full((3, 2), 0x8000, dtype=np.uint16))
    assert (images_module.decode(encoded(deep), "x") == 0x80).all()
    assert images_module.decode(encoded(Image.new("L", (2, 3))), "x", channels=3).shape == (3, 3, 2)
    assert images_module.decode(encoded(Image.new("CMYK", (2, 3)), "JPEG"), "x").shape == (3, 3, 2)


# .npz


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


class Trap:
    def __reduce__(self):
        return os.system, ("touch /tmp/preceptor-was-fooled",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_x": None}, "but no train_x; expected train_x, train_y"),
        ({"test_y": None}, "only one of test_x and test_y"),
        ({"classes": np.array(["a", "b", "c"], dtype=object)}, "without object arrays"),
        ({"classes": np.array([Trap()], dtype=object)}, "without object arrays"),
        ({"classes": np.zeros(3)}, "expected a list of strings"),
        ({"train_y": np.arange(12)}, "train labels from 0 to 11 for 3 classes"),
        ({"test_x": np.zeros((6, 4, 4, 3), np.uint8)}, "bring them to one shape"),
    ],
)
def test_wrong_npz(tmp_path, change, message):
    path, _ = npz(tmp_path / "toy.npz", **change)
    with pytest.raises(PreceptorError, match=message):
        Task(path)
    assert not os.path.exists("/tmp/preceptor-was-fooled")


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


# CIFAR


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
    assert not os.path.exists("/tmp/preceptor-was-fooled")


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
    assert not os.path.exists("/tmp/preceptor-was-fooled")


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


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 an archive", b"plain text"])
def test_what_is_no_image_is_called_so(content):
    with pytest.raises(
        PreceptorError, match=r"^x cannot be read as an image \(unknown or damaged format\); mend it"
    ):
        images_module.decode(content, "x")


def test_a_missing_image_and_a_folder_are_sentences(tmp_path):
    with pytest.raises(PreceptorError, match=r"x\.png does not exist; name an image file"):
        images_module.read_bytes(tmp_path / "x.png")
    with pytest.raises(PreceptorError, match="is a folder; name an image file"):
        images_module.read_bytes(tmp_path)


def test_arrays_without_samples_are_called_so(tmp_path):
    np.savez(tmp_path / "a.npz", train_x=np.zeros((0, 3), np.float32), train_y=np.zeros(0, int))
    with pytest.raises(PreceptorError, match="train_x is empty: there are no train samples; add some"):
        Task(tmp_path / "a.npz")


def test_what_may_not_be_read_is_not_called_empty_or_damaged(make_folder, monkeypatch, tmp_path):
    root = make_folder({"a": 2, "b": 2})
    listed = os.scandir

    def refuse(path):
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        Task(root)
    monkeypatch.undo()
    np.savez(tmp_path / "a.npz", train_x=np.zeros((4, 3), np.float32), train_y=np.arange(4) % 2)
    monkeypatch.setattr("zipfile.ZipFile", lambda *_, **__: refuse("b"))
    with pytest.raises(PermissionError):
        Task(tmp_path / "a.npz")
