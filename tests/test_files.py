from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from preceptor.files import check_can_write, explain, remove_leftovers, write_atomically


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
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(target, b"new")
    assert explain(caught.value).startswith(f"'{target}' cannot be used (no space left")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_of_a_killed_write_go(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.12ab34cd.part").write_bytes(b"half")
    (tmp_path / "model.safetensors").write_bytes(b"whole")
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize(
    ("number", "path", "sentence"),
    [
        (errno.ENOENT, "/proc/demo", "'/proc/demo' cannot be used (no such file or directory); check the path, or "
         "name a folder in which you may write"),
        (errno.EACCES, "/root/x", "'/root/x' cannot be used (permission denied); ask for the right to use it, or "
         "name another place"),
        (errno.EACCES, "/z/.staging-vm-1-ab", "'/z' cannot be used (permission denied); ask for the right to use it, "
         "or name another place"),
        (errno.EROFS, "/x", "'/x' cannot be used (read-only file system); name a folder in which you may write"),
        (errno.ENOSPC, "a/.b.onnx.0123abcd.part", "'a/b.onnx' cannot be used (no space left on device); free some "
         "space and try again"),
        (errno.EFBIG, "m", "'m' cannot be used (file too large); raise the limit on a file's size (ulimit -f) and "
         "try again"),
        (errno.ENAMETOOLONG, "y" * 9, "'yyyyyyyyy' cannot be used (file name too long); choose a shorter name"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_path_and_what_to_do(number: int, path: str, sentence: str) -> None:
    assert explain(OSError(number, os.strerror(number), path)) == sentence


def test_a_refusal_without_a_path_is_a_sentence_too() -> None:
    told = "the system refused (no space left on device); free some space and try again"
    assert explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == told
    assert explain(OSError(errno.EIO, os.strerror(errno.EIO), 3)).startswith(
        "the system refused (input/output"
    )
    assert explain(OSError("no such model")) == "no such model"


def test_a_rename_that_fails_names_its_target(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_atomically(tmp_path / "a", b"x")
    assert explain(caught.value).startswith(
        f"'{tmp_path}/a' cannot be used (is a directory); a folder stands"
    )


def test_what_could_be_written_is_said_beforehand_and_leaves_nothing(tmp_path: Path) -> None:
    check_can_write(tmp_path / "a.html")
    check_can_write(tmp_path / "to be" / "made" / "a.html")
    assert os.listdir(tmp_path) == []


def test_what_could_not_be_written_is_said_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        check_can_write(tmp_path / "folder")
    assert explain(caught.value).endswith("a folder stands where a file is needed: name a file")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        check_can_write(tmp_path / "file" / "deeper" / "a.html")
    assert explain(caught.value).startswith(
        f"'{tmp_path}/file/deeper/a.html' cannot be used (not a directory)"
    )

    def refuse(path: str, *rest: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(PermissionError) as caught:
        check_can_write(tmp_path / "folder" / "a.html")
    assert explain(caught.value).startswith(f"'{tmp_path}/folder/a.html' cannot be used (permission denied)")
