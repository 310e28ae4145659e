"""A store without a lock: names are claimed, and a write cut off shows no half teacher."""

from __future__ import annotations

import contextlib
import json
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.object_storage import CLAIM_FILE, ObjectStorage


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
    for allowed in range(10):
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
