"""The list of a zoo is always right, and quick."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE
from tests.zoo.conftest import CLASSES
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
