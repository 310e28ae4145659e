"""Whether a teacher can be added is told before the work of adding it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.conftest import make_run


def test_a_free_name_leaves_nothing_behind(any_zoo: Zoo, tmp_path: Path) -> None:
    any_zoo.check_free("a")
    assert any_zoo.names() == []
    if hasattr(any_zoo.storage, "filesystem"):
        assert any_zoo.storage.filesystem.find(any_zoo.storage.root) == []
    any_zoo.add(f"run:{make_run(tmp_path / 'r')}", name="a")
    any_zoo.check_free("b")
    with pytest.raises(PreceptorError, match="has a teacher 'a' already"):
        any_zoo.check_free("a")


def test_a_zoo_that_does_not_exist_yet_is_not_made(tmp_path: Path) -> None:
    Zoo(tmp_path / "some" / "zoo").check_free("a")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_card_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(PreceptorError, match=r"a folder 'a' that is no teacher .* choose another name"):
        Zoo(tmp_path).check_free("a")


def test_what_cannot_be_written_is_refused_before_the_source_is_read(
    any_zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("preceptor.zoo.storage.check_can_write", refuse)
    if hasattr(any_zoo.storage, "filesystem"):
        monkeypatch.setattr(any_zoo.storage.filesystem, "pipe_file", refuse, raising=False)
    monkeypatch.setattr("preceptor.zoo.adding.prepare", lambda *_, **__: pytest.fail("the source was read"))
    with pytest.raises(PermissionError):
        any_zoo.add("run:nowhere", name="a")
