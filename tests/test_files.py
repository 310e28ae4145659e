from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from preceptor.files import remove_leftovers, write_atomically


def test_writes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_atomically(target, b"one")
    write_atomically(target, b"two")
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    target = tmp_path / "a.json"
    write_atomically(target, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_of_a_killed_write_go(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.12ab34cd.part").write_bytes(b"half")
    (tmp_path / "model.safetensors").write_bytes(b"whole")
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
