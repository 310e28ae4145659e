"""A store without a lock: names are claimed, and a write cut off shows no half teacher."""

from __future__ import annotations

import contextlib
import json
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo, object_storage
from preceptor.zoo.card import CARD_FILE
from preceptor.zoo.object_storage import CLAIM_FILE, CLAIM_SECONDS, ObjectStorage


def test_an_object_store_keeps_a_claimed_name_for_its_claimer(run: Path) -> None:
    zoo = Zoo("memory://claims/zoo")
    storage = zoo.storage
    assert isinstance(storage, ObjectStorage)
    path = f"{storage.root}/a/{CLAIM_FILE}"
    storage.filesystem.pipe_file(path, json.dumps({"token": "x", "time": time.time()}).encode())
    with pytest.raises(PreceptorError, match=r"another process is adding 'a'.*remove 'a' first"):
        zoo.add(f"run:{run}", name="a")
    zoo.remove("a")
    zoo.add(f"run:{run}", name="a")
    storage.filesystem.pipe_file(
        f"{storage.root}/b/{CLAIM_FILE}", json.dumps({"token": "x", "time": 0}).encode()
    )
    zoo.add(f"run:{run}", name="b")
    assert zoo.names() == ["a", "b"]


def test_a_claim_that_goes_with_another_add_is_not_ours(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two adds overwrite a claim that has just been given up; the one whose token stays ends first and removes it."""
    zoo = Zoo("memory://vanishing/zoo")
    filesystem = zoo.storage.filesystem  # type: ignore[attr-defined]
    write, delete = filesystem.pipe_file, filesystem.rm_file

    def gone(path: str, data: bytes, **options: Any) -> None:
        write(path, data, **options)
        if path.endswith(CLAIM_FILE):
            delete(path)

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "pipe_file", gone)
        with pytest.raises(PreceptorError, match="another process is adding 'a' to this zoo"):
            zoo.add(f"run:{run}", name="a")
    assert zoo.names() == []
    zoo.add(f"run:{run}", name="a")


def test_an_object_store_cut_off_after_any_write_shows_all_or_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a killed process had written: no half teacher, and removing clears the way."""
    zoo = Zoo("memory://cut/zoo")
    filesystem = zoo.storage.filesystem  # type: ignore[attr-defined]
    write, delete = filesystem.pipe_file, filesystem.rm_file
    seen = set()
    for allowed in range(13):
        left = [allowed]

        def one(action: Any, *args: Any, left: list[int] = left, **options: Any) -> None:
            if left[0] == 0:
                raise SystemExit
            left[0] -= 1
            action(*args, **options)

        with monkeypatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr(filesystem, "pipe_file", partial(one, write))
            patch.setattr(filesystem, "rm_file", partial(one, delete))
            zoo.add(f"run:{run}", name="a")
        seen.add(tuple(zoo.names()))
        assert zoo.names() in ([], ["a"])
        assert [zoo.verify(name) for name in zoo.names()] == [[] for _ in zoo.names()]
        with contextlib.suppress(PreceptorError):
            zoo.remove("a")
        assert zoo.names() == []
    assert seen == {(), ("a",)}


OURS, OTHERS = ({"check": who, "weights": who, CARD_FILE: b"{}" + who} for who in (b"ours", b"others"))
in_both = pytest.mark.parametrize("any_zoo", ["memory", "s3"], indirect=True)


def content(storage: ObjectStorage) -> dict[str, bytes]:
    """All files under the name that the tests fight over."""
    return {file: storage.filesystem.cat_file(path) for file, path in storage._under("a").items()}


def commit_ours(storage: ObjectStorage, file: str, send: Callable[[Callable[[], None]], None]) -> None:
    """An add that does as `send` says when it is to send one of its files, by what writes that file."""
    write = storage.filesystem.pipe_file

    def sent(path: str, data: bytes, **options: Any) -> None:
        ours = path.endswith(f"/{file}") and data == OURS[file]
        send(partial(write, path, data, **options)) if ours else write(path, data, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.filesystem, "pipe_file", sent)
        storage.commit("a", OURS)


def taken_over(storage: ObjectStorage, *, done: bool) -> dict[str, bytes]:
    """What is there once another process has taken the name for abandoned: its teacher, or the beginning of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_storage, "CLAIM_SECONDS", -1)
        if done:
            storage.commit("a", OTHERS)
        else:
            storage._claim("a")
            storage.filesystem.pipe_file(storage._path("a", "check"), b"others")
    found = content(storage)
    assert (CLAIM_FILE in found) != done
    return found


@in_both
@pytest.mark.parametrize("file", OURS)
@pytest.mark.parametrize("done", [True, False], ids=["others-done", "others-under-way"])
def test_an_add_that_fails_after_another_took_its_name_leaves_the_others_files(
    any_zoo: Zoo, file: str, done: bool
) -> None:
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)

    def fail(write: Callable[[], None]) -> None:
        found.update(taken_over(storage, done=done))
        raise OSError("the network is gone")

    found: dict[str, bytes] = {}
    with pytest.raises(OSError, match="the network is gone"):
        commit_ours(storage, file, fail)
    assert content(storage) == found


@in_both
@pytest.mark.parametrize("file", ["check", "weights"])
@pytest.mark.parametrize("done", [True, False], ids=["others-done", "others-under-way"])
def test_an_add_stops_where_another_took_its_name(any_zoo: Zoo, file: str, done: bool) -> None:
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)

    def send(write: Callable[[], None]) -> None:
        write()
        found.update(taken_over(storage, done=done))

    found: dict[str, bytes] = {}
    with pytest.raises(PreceptorError, match="another process removed 'a' or took it over while"):
        commit_ours(storage, file, send)
    assert content(storage) == found


@in_both
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("file", OURS)
def test_a_removal_while_a_teacher_is_added_leaves_nothing_in_the_way(
    any_zoo: Zoo, file: str, late: bool
) -> None:
    """Be the file that was on its way there before the removal or after it."""
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)

    def send(write: Callable[[], None]) -> None:
        for act in (partial(storage.remove, "a"), write)[:: 1 if late else -1]:
            act()

    with pytest.raises(PreceptorError, match="another process removed 'a' or took it over while"):
        commit_ours(storage, file, send)
    assert content(storage) == {}
    storage.commit("a", OTHERS)
    assert content(storage) == OTHERS


@in_both
@pytest.mark.parametrize("file", OURS)
def test_a_file_that_comes_while_its_teacher_is_being_removed_goes_too(any_zoo: Zoo, file: str) -> None:
    """The add that sent it is over by then: it has seen the removal's claim, or was killed."""
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)
    storage._claim("a")
    delete, on_its_way = storage.filesystem.rm_file, {file: OURS[file]}

    def arrive_first(path: str) -> None:
        while path.endswith(CLAIM_FILE) and on_its_way:
            storage.filesystem.pipe_file(storage._path("a", file), on_its_way.pop(file))
        delete(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.filesystem, "rm_file", arrive_first)
        assert storage.remove("a")
    assert not on_its_way
    assert content(storage) == {}


@in_both
@pytest.mark.parametrize("done", [True, False], ids=["others-done", "others-under-way"])
def test_a_removal_leaves_a_teacher_that_is_added_right_after_it(any_zoo: Zoo, done: bool) -> None:
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)
    storage.commit("a", OURS)
    delete = storage.filesystem.rm_file
    found: dict[str, bytes] = {}

    def add_next(path: str) -> None:
        delete(path)
        if path.endswith(CLAIM_FILE):
            patch.undo()
            found.update(taken_over(storage, done=done))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.filesystem, "rm_file", add_next)
        assert storage.remove("a")
    assert found
    assert content(storage) == found


@in_both
def test_an_add_that_goes_on_for_long_keeps_its_claim(any_zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = any_zoo.storage
    assert isinstance(storage, ObjectStorage)
    clock, write, refused = [time.time()], storage.filesystem.pipe_file, []

    def slow(path: str, data: bytes, **options: Any) -> None:
        write(path, data, **options)
        if data in OURS.values():
            clock[0] += 0.6 * CLAIM_SECONDS
            with pytest.raises(PreceptorError, match=r"another process is adding 'a'|teacher 'a' already"):
                storage.commit("a", OTHERS)
            refused.append(path)

    monkeypatch.setattr(object_storage, "time", SimpleNamespace(time=lambda: clock[0]))
    monkeypatch.setattr(storage.filesystem, "pipe_file", slow)
    storage.commit("a", OURS)
    assert len(refused) == len(OURS)
    assert content(storage) == OURS


def test_a_store_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores raise exceptions of their own, such as botocore's NoCredentialsError."""
    zoo = Zoo("memory://far/zoo")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Unable to locate credentials\nand much more")

    monkeypatch.setattr(type(zoo.storage.filesystem.filesystem), "exists", fail)  # type: ignore[attr-defined]
    with pytest.raises(
        PreceptorError, match=r"far/zoo cannot be reached \(Unable to locate credentials\); check"
    ):
        zoo.exists()
    zoo.storage = pickle.loads(pickle.dumps(zoo.storage))
    with pytest.raises(PreceptorError, match="cannot be reached"):
        zoo.exists()
