"""The list of a zoo is always right, and quick."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE, INDEX_FILE
from preceptor.zoo.storage import LocalStorage
from tests.zoo.conftest import CLASSES, make_run
from tests.zoo.tampering import damage


def test_listing_follows_every_change_with_and_without_its_index(any_zoo: Zoo, run: Path) -> None:
    any_zoo.add(f"run:{run}", name="b")
    any_zoo.add(f"run:{run}", name="a")
    rows = any_zoo.listing()
    assert [row["name"] for row in rows] == ["a", "b"]
    any_zoo.storage.write_index(
        ["{torn", "[]", '{"name": "ghost", "stamp": [1]}', json.dumps({"name": "a", "stamp": []})]
    )
    assert any_zoo.listing() == rows
    any_zoo.remove("a")
    assert [row["name"] for row in any_zoo.listing()] == ["b"]
    changed = any_zoo.card("b").model_copy(update={"accuracy": 0.25})
    damage(any_zoo, "b", CARD_FILE, changed.model_dump_json().encode())
    assert any_zoo.listing()[0]["accuracy"] == 0.25


def test_listing_reads_no_card_twice(any_zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    any_zoo.add(f"run:{run}", name="a")
    rows = any_zoo.listing()
    monkeypatch.setattr(Zoo, "card", lambda *_: pytest.fail("a card was read"))
    assert any_zoo.listing() == rows


def test_a_teacher_that_cannot_be_read_hides_no_other(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="good")
    folder = Path(zoo.url) / "looped"
    folder.mkdir()
    (folder / "card.json").symlink_to(folder / "card.json")
    bad, good = sorted(zoo.listing(), key=lambda row: "problem" not in row)
    assert good["name"] == "good"
    assert bad["name"] == "looped"
    assert "cannot be used" in bad["problem"]
    assert zoo.verify("looped") == [bad["problem"]]


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOLCK])
def test_a_zoo_whose_index_cannot_be_written_goes_without(
    any_zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        if hasattr(any_zoo.storage, "filesystem") and not path.endswith(INDEX_FILE):
            return write(path, *args, **options)
        raise OSError(number, os.strerror(number), str(path))

    if hasattr(any_zoo.storage, "filesystem"):
        write = any_zoo.storage.filesystem.pipe_file
        monkeypatch.setattr(any_zoo.storage.filesystem, "pipe_file", refuse)
    else:
        monkeypatch.setattr("preceptor.zoo.storage.FileLock", refuse)
    any_zoo.add(f"run:{run}", name="a")
    assert [row["name"] for row in any_zoo.listing()] == ["a"]
    assert any_zoo.storage.read_index() == b""


def test_a_teacher_that_goes_while_the_zoo_is_listed_is_no_broken_one(
    any_zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        any_zoo.add(f"run:{run}", name=name)
    any_zoo.storage.write_index([])
    read = Zoo.card

    def gone(self: Zoo, name: str) -> Any:
        if name == "a":
            self.remove(name)
        return read(self, name)

    monkeypatch.setattr(Zoo, "card", gone)
    assert [(row["name"], "problem" in row) for row in any_zoo.listing()] == [("b", False)]


def test_a_line_of_the_index_is_never_taken_for_the_teacher_that_came_after(
    zoo: Zoo, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between storing a teacher and noting it, another process replaces it by one of four classes."""
    other, commit = make_run(tmp_path / "other", classes=("a", "b", "c", "d")), LocalStorage.commit

    def replaced(self: LocalStorage, name: str, files: Any) -> Any:
        monkeypatch.setattr(LocalStorage, "commit", commit)
        stamp = commit(self, name, files)
        zoo.remove(name)
        zoo.add(f"run:{other}", name=name)
        return stamp

    monkeypatch.setattr(LocalStorage, "commit", replaced)
    zoo.add(f"run:{run}", name="a")
    assert [row["classes"] for row in zoo.listing()] == [4]


def test_what_a_killed_listing_left_goes_with_an_add_a_day_later(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    left, fresh = (Path(zoo.url) / f".{INDEX_FILE}.0123abc{digit}.part" for digit in "de")
    for path in (left, fresh):
        path.write_text("{")
    os.utime(left, (1, 1))
    zoo.add(f"run:{run}", name="b")
    assert not left.exists()
    assert fresh.exists()


def test_ten_thousand_cards_list_in_under_a_second(zoo: Zoo, run: Path) -> None:
    card = zoo.add(f"run:{run}", name="a")
    text = card.model_dump_json()
    for number in range(10_000):
        folder = zoo.storage.root / f"t{number:05}"  # type: ignore[attr-defined]
        folder.mkdir()
        (folder / CARD_FILE).write_text(text.replace('"name":"a"', f'"name":"t{number:05}"', 1))
    assert len(zoo.listing()) == 10_001  # writes the index
    began = time.perf_counter()
    rows = Zoo(zoo.url).listing()
    seconds = time.perf_counter() - began
    assert len(rows) == 10_001
    assert rows[-1]["name"] == "t09999"
    assert rows[-1]["classes"] == len(CLASSES)
    assert seconds < 1
