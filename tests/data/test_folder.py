import errno
import os
import shutil
import time

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data import scan as scan_module
from preceptor.data.folder import merged_folders
from preceptor.data.unlabelled import read_unlabelled

LAYOUT = {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1}


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


def test_a_class_may_be_called_train(make_folder):
    task = Task(make_folder({"car": 4, "train": 8}))
    assert task.classes == ("car", "train")
    assert np.bincount(task.train.labels).tolist() == [3, 6]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("training", "validation"),
        ("Train", "Test"),
        ("Training", "Testing"),
        ("train", "valid"),
        ("TRAIN", "Val"),
    ],
)
def test_parts_have_several_usual_names(make_folder, train, test):
    task = Task(make_folder({f"{train}/cat": 3, f"{train}/dog": 2, f"{test}/cat": 1, f"{test}/dog": 1}))
    assert task.classes == ("cat", "dog")
    assert (len(task.train), len(task.test)) == (5, 2)


def test_of_test_and_validation_test_is_read(make_folder):
    task = Task(make_folder({**LAYOUT, "validation/cat": 4, "validation/bird": 4}))
    assert (task.classes, len(task.test)) == (("cat", "dog"), 2)


def test_valid_may_be_a_class(make_folder):
    assert Task(make_folder({"invalid": 4, "valid": 4})).classes == ("invalid", "valid")


def test_folders_within_a_class_folder_are_its_own_and_told(make_folder):
    root = make_folder({"animal/cat": 4, "animal/dog": 4, "plant/oak/old": 4, "plant": 4, "stone": 4})
    task = Task(root)
    assert task.classes == ("animal", "plant", "stone")
    assert merged_folders(task.train) == [
        "images in folders of class 'animal' ('cat', 'dog') count as 'animal', likewise in 1 more; "
        f"if these are the classes, give {root / 'animal'} instead"
    ]
    two_levels = Task(
        make_folder({"train/a/x": 2, "train/train": 2, "test/a": 1, "test/train": 1}, name="two")
    )
    assert merged_folders(two_levels.train)[0].startswith(
        "images in folders of class 'a' ('x') count as 'a'; if"
    )
    assert merged_folders(Task(make_folder(LAYOUT, name="flat")).train) == []


@pytest.mark.parametrize("inside", [b"\xc4pfel/1.png", b"cat/\xe4.png"])
def test_a_name_that_is_not_utf_8_is_told(make_folder, inside):
    root = make_folder(LAYOUT)
    where = os.path.join(os.fsencode(root), b"train", inside)
    os.makedirs(os.path.dirname(where), exist_ok=True)
    shutil.copy(next((root / "train" / "dog").iterdir()), where)
    with pytest.raises(PreceptorError, match=r"the name b'.*\\x.*' is not UTF-8; rename it"):
        Task(root)


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
    with monkeypatch.context() as patch:  # undoing all would take away the cache of these tests, too
        patch.setattr("preceptor.data.scan.read_bytes", lambda path: pytest.fail(f"read {path} again"))
        assert Task(root).fingerprint == before
    os.utime(root / "train" / "cat" / "000.png", ns=(1, 1))
    assert Task(root).fingerprint == before


@pytest.mark.parametrize("how", ["written over", "replaced"])
def test_other_content_under_the_same_name_size_and_time_is_seen(make_folder, tmp_path, how):
    root = make_folder(LAYOUT)
    path = root / "train" / "cat" / "000.bmp"
    written = path if how == "written over" else tmp_path / "beside.bmp"

    def fingerprint_with(shade):
        Image.new("RGB", (8, 6), (shade, shade, shade)).save(written)
        os.utime(written, ns=(10**18, 10**18))  # an archive with fixed times and `rsync --times` do so
        os.replace(written, path)
        time.sleep(0.02)  # more than a tick of the clock that files are stamped by
        return Task(root).fingerprint

    assert fingerprint_with(1) != fingerprint_with(2)


def test_a_damaged_scan_memory_is_not_trusted(make_folder):
    root = make_folder(LAYOUT)
    before = Task(root).fingerprint
    (memory,) = os.listdir(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans"))
    known = f'{{"schema": {scan_module.SCHEMA}'
    entries = ("[1]", "[[1, 1, 1, 1], null, null, null, null]", "3")
    of_one = [f'{known}, "files": {{"train/cat/000.png": {entry}}}}}' for entry in entries]
    for rubbish in ("{", "[]", known + "}", *of_one):
        with open(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans", memory), "w") as stream:
            stream.write(rubbish)
        assert Task(root).fingerprint == before


def test_a_file_that_may_not_be_read_is_tried_again(make_folder, monkeypatch):
    root = make_folder(LAYOUT)
    whole = Task(root).fingerprint
    shutil.rmtree(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans"))
    read = scan_module.read_bytes

    def refuse(path):
        if path.name == "001.png":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr(scan_module, "read_bytes", refuse)
    with pytest.raises(
        PreceptorError, match=r"001.png' cannot be used \(permission denied\); ask for the right"
    ):
        Task(root)
    monkeypatch.setattr(scan_module, "read_bytes", read)
    assert Task(root).fingerprint == whole


def test_a_full_disk_costs_the_memory_of_a_scan_and_leaves_nothing(make_folder, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    assert len(Task(make_folder(LAYOUT)).train)
    assert os.listdir(os.path.join(os.environ["PRECEPTOR_CACHE"], "scans")) == []


def test_linked_folders_are_read_and_links_back_are_not_followed_for_ever(make_folder, tmp_path):
    root = make_folder({"train/cat": 1, "test/cat": 1, "test/dog": 1})
    elsewhere = make_folder({"dog": 2, "dog/more": 1, "cats": 3}, name="elsewhere")
    (root / "train" / "dog").symlink_to(elsewhere / "dog")
    (root / "train" / "cat" / "found").symlink_to(elsewhere / "cats")
    (elsewhere / "cats" / "back").symlink_to(root / "train" / "cat")
    assert np.bincount(Task(root).train.labels).tolist() == [4, 3]
    assert len(read_unlabelled(root / "train")[0]) == 7


@pytest.mark.parametrize("name", ["train/dog", "test"])
def test_a_folder_behind_a_link_that_leads_nowhere_is_not_left_out_in_silence(make_folder, tmp_path, name):
    root = make_folder({**LAYOUT, "train/emu": 1, "test/emu": 1})
    shutil.move(root / name, tmp_path / "away")
    (root / name).symlink_to(tmp_path / "gone")
    with pytest.raises(
        PreceptorError, match=f"{name} is a link that leads nowhere, .*; mend it or remove it"
    ):
        Task(root)


@pytest.mark.parametrize("uniform", [True, False])
def test_an_image_that_changes_after_the_scan_is_named(make_folder, uniform):
    root = make_folder(LAYOUT, size=(8, 6) if uniform else lambda number: (8 + number, 6))
    task = Task(root)
    Image.new("RGB", (3, 3)).save(root / "train" / "cat" / "001.png")
    with pytest.raises(PreceptorError, match=r"cat/001\.png has changed since the data was looked through"):
        task.train.load(slice(None))


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
        ({"train/a": 1, "train/b": 1, "car": 1}, "has train/ but neither test/ nor val/"),
        ({"train": 4, "test": 4}, "train has no class folders; expected one folder of images for each class"),
        ({"train": 4, "val": 4, "car": 4}, "train has no class folders"),
        ({"train": 4}, "train has no class folders"),
        ({"Training/a": 1, "Training/b": 1}, "has Training/ but neither test/ nor val/"),
        (
            {**LAYOUT, "Testing/cat": 1},
            "has both Testing/ and test/; rename or remove the one that is not meant",
        ),
        ({**LAYOUT, "training/cat": 1}, "has both train/ and training/; rename"),
        ({"test/a": 4, "val/a": 4}, "has test/ with folders in it but no train/; add one, or give"),
        ({"validation/a": 4, "car": 4}, "has validation/ with folders in it but no train/"),
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


def test_an_empty_name_is_not_the_current_folder(make_folder, monkeypatch):
    monkeypatch.chdir(make_folder(LAYOUT))
    assert len(Task(".").train)
    for read in (Task, read_unlabelled):
        with pytest.raises(PreceptorError, match=r"data '' does not exist; give a folder of"):
            read("")
        with pytest.raises(PreceptorError, match=r"^data 'cifar10:' names no folder; give cifar10:ROOT$"):
            read("cifar10:")


def test_the_home_of_nobody_does_not_exist():
    with pytest.raises(PreceptorError, match=r"^data '~nouser/x' does not exist; give a folder"):
        Task("~nouser/x")
    with pytest.raises(PreceptorError, match=r"^unlabelled data '~nouser/x' does not exist; give a folder"):
        read_unlabelled("~nouser/x")
    for read in (Task, read_unlabelled):
        with pytest.raises(PreceptorError, match=r"^cifar100: ~nouser/cifar-100-python has no train"):
            read("cifar100:~nouser")


def test_what_may_not_be_read_is_not_called_empty_or_damaged(make_folder, monkeypatch, tmp_path):
    root = make_folder({"a": 2, "b": 2})
    listed = os.scandir

    def refuse(path):
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(PermissionError):
            Task(root)
    np.savez(tmp_path / "a.npz", train_x=np.zeros((4, 3), np.float32), train_y=np.arange(4) % 2)
    monkeypatch.setattr("zipfile.ZipFile", lambda *_, **__: refuse("b"))
    with pytest.raises(PermissionError):
        Task(tmp_path / "a.npz")
