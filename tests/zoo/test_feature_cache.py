"""Features are computed once, found only where they are the same, and thrown out when room is short."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data.split import Split
from preceptor.zoo import Card, FeatureCache, Preprocessing, Teacher, extract
from preceptor.zoo import features as features_module
from preceptor.zoo.cache import parse_size
from preceptor.zoo.cache_parts import clear_parts
from preceptor.zoo.features import cache_key
from tests.zoo.conftest import make_task


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that went through a teacher, without the zeros by which `lay_out` tries it."""
    seen: list[int] = []
    original = Teacher.outputs

    def counted(self: Teacher, inputs: torch.Tensor, maps: bool = True) -> Any:
        seen.append(len(inputs) if inputs.any() else 0)
        return original(self, inputs, maps)

    monkeypatch.setattr(Teacher, "outputs", counted)
    return seen


def test_a_second_time_costs_no_forward_pass(teacher: Teacher, calls: list[int]) -> None:
    task = make_task()
    first = extract(teacher, task.train)
    assert sum(calls) == 20
    second = extract(teacher, task.train, batch_size=4)
    assert sum(calls) == 20
    np.testing.assert_array_equal(first.features, second.features)
    extract(teacher, task.test)
    assert sum(calls) == 40, "the other split has the same labels but is not the same data"


def test_a_damaged_entry_is_computed_again(teacher: Teacher, calls: list[int]) -> None:
    task, cache = make_task(), FeatureCache()
    extract(teacher, task.train)
    (entry,) = cache.entries()
    (cache.root / entry.key / "features.npy").write_bytes(b"broken")
    came = extract(teacher, task.train)
    assert sum(calls) == 40
    assert came.features.shape == (20, 16)


def test_the_key_follows_everything_the_features_depend_on(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()

    def key(card: Card = teacher.card, split: Any = task.train, fingerprint: str | None = None) -> str:
        return cache_key(card, split, fingerprint)

    card = teacher.card
    weights = {**card.files, "weights.safetensors": card.files["check.safetensors"]}
    changed = [
        key(card.model_copy(update={"files": weights})),
        key(card.model_copy(update={"head": card.head.model_copy(update={"reduction": "mean"})})),
        key(card.model_copy(update={"preprocessing": Preprocessing.for_size((3, 16, 16))})),
        key(split=task.test),
        key(split=Task.from_splits(task.train.select([1, 0, 2]), task.test, task.classes).train),
        key(split=Split(task.train.store, task.train.labels[::-1])),
        key(fingerprint="f"),
    ]
    same = key(card.model_copy(update={"name": "other", "accuracy": 0.1}))
    with monkeypatch.context() as patch:
        patch.setattr(features_module, "EXTRACTION_VERSION", features_module.EXTRACTION_VERSION + 1)
        changed.append(key())
    assert same == key()
    assert len({key(), *changed}) == len(changed) + 1


def entry_of(cache: FeatureCache, key: str, rows: int = 100) -> None:
    data = np.ones((rows, 100), np.float32)
    cache.put(key, iter([(data, data)]), np.zeros(rows, np.int64), {"teacher": key})
    time.sleep(0.01)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c", limit=250_000)  # three entries of about 80 kB
    for key in ("a", "b", "c"):
        entry_of(cache, key)
    assert cache.get("a") is not None
    time.sleep(0.01)
    entry_of(cache, "d")
    assert [entry.key for entry in cache.entries()] == ["d", "a", "c"]
    assert cache.get("b") is None
    assert sum(entry.size for entry in cache.entries()) <= cache.limit


def test_what_is_larger_than_the_limit_is_returned_and_not_kept(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c", limit=1000)
    data = np.arange(1000, dtype=np.float32).reshape(10, 100)
    came = cache.put("a", iter([(data, data)]), np.zeros(10, np.int64), {"teacher": "t"})
    assert cache.entries() == []
    np.testing.assert_array_equal(came.features, data)


def test_a_failed_pass_leaves_nothing(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c")
    data = np.ones((5, 2), np.float32)

    def breaks() -> Any:
        yield data, data
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.put("a", breaks(), np.zeros(10, np.int64), {"teacher": "t"})
    with pytest.raises(PreceptorError, match="5 rows of features came for 10 samples"):
        cache.put("a", iter([(data, data)]), np.zeros(10, np.int64), {"teacher": "t"})
    assert cache.get("a") is None
    assert list(cache.root.iterdir()) == []


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = cache.root / f".staging-{socket.gethostname()}-{child.pid}-abcd"
    alive = cache.root / f".staging-{socket.gethostname()}-{os.getpid()}-abcd"
    left.mkdir(parents=True)
    alive.mkdir()
    entry_of(cache, "a")
    assert not left.exists()
    assert alive.exists()


def test_what_others_left_is_swept_when_nobody_wrote_to_it_for_a_day(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c")
    left, long, total = (
        cache.root / f".{what}-elsewhere-1-abcd" for what in ("staging", "staging-far", "total")
    )
    for folder in (left, long):
        folder.mkdir(parents=True)
        (folder / "features.npy").write_bytes(b"rows")
    total.write_text("1")
    for path in (left, left / "features.npy", long, total):
        os.utime(path, (1, 1))
    entry_of(cache, "a")
    assert not left.exists()
    assert not total.exists()
    assert long.exists(), "rows are still being written to a file in it"


def test_clearing_takes_what_killed_processes_left_in_any_part(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = socket.gethostname()
    trash = tmp_path / "students" / f".trash-{host}-{child.pid}-abcd"
    own = tmp_path / "students" / f".trash-{host}-{os.getpid()}-abcd"
    part, fresh = (tmp_path / "scans" / f".a.json.{token}.part" for token in ("01234567", "89abcdef"))
    for path in (trash / "checkpoint", own / "checkpoint", part, fresh):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    os.utime(part, (1, 1))
    clear_parts(tmp_path)
    assert [path.exists() for path in (trash, own, part, fresh)] == [False, True, False, True]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cache_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    cache = FeatureCache(tmp_path / "c")
    entry_of(cache, "a")
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("a sound entry was thrown out"))
    assert cache.get("a") is not None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_sound_entry_stays_where_the_process_has_no_more_files_or_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    cache = FeatureCache(tmp_path / "c")
    entry_of(cache, "a")
    with monkeypatch.context() as patch:
        patch.setattr(np, "load", refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            cache.get("a")
    assert cache.get("a") is not None


def test_an_entry_that_others_throw_out_as_soon_as_they_see_it_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, rename = FeatureCache(tmp_path / "c"), os.rename

    def thrown_out(source: Any, target: Any) -> None:
        rename(source, target)
        if Path(target).name == "a":
            assert FeatureCache(tmp_path / "c").clear() == 1

    monkeypatch.setattr(os, "rename", thrown_out)
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    came = cache.put("a", iter([(rows, rows)]), np.zeros(10, np.int64), {"teacher": "t"})
    np.testing.assert_array_equal(came.features, rows)
    assert cache.entries() == []


def test_location_and_limit_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "1.5 GB")
    cache = FeatureCache()
    assert cache.root == tmp_path / "here" / "features"
    assert cache.limit == 3 * 2**29
    monkeypatch.delenv("PRECEPTOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert FeatureCache().root == tmp_path / "xdg" / "preceptor" / "features"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert FeatureCache().root == tmp_path / ".cache" / "preceptor" / "features"
    assert parse_size("800M") == 800 * 2**20
    with pytest.raises(PreceptorError, match="'lots' is no size for the cache"):
        parse_size("lots")
