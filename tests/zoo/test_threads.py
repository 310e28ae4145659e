"""Threads that add to one zoo at once do not get into each other's way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE
from preceptor.zoo.storage import LocalStorage
from tests.zoo.conftest import make_run


def at_once(work: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """Each argument in a thread of its own."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_adding_at_once_lose_nothing(any_zoo: Zoo, run: Path) -> None:
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            Zoo(any_zoo.url).add(f"run:{run}", name=f"t{number}")
        except Exception as error:
            errors.append(error)

    at_once(work, range(4))
    assert errors == []
    assert any_zoo.names() == ["t0", "t1", "t2", "t3"]
    assert [row["name"] for row in any_zoo.listing()] == any_zoo.names()
    assert all(any_zoo.verify(name) == [] for name in any_zoo.names())


def test_one_name_added_by_many_at_once_is_one_of_them_whole(any_zoo: Zoo, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"r{n}", seed=n) for n in range(3)]
    outcomes: list[str] = []

    def work(run: Path) -> None:
        try:
            Zoo(any_zoo.url).add(f"run:{run}", name="same")
            outcomes.append("added")
        except PreceptorError as error:
            outcomes.append(str(error))

    at_once(work, runs)
    assert outcomes.count("added") == 1
    assert all("already" in o or "another process is adding" in o for o in outcomes if o != "added")
    assert any_zoo.verify("same") == []


@pytest.mark.parametrize("comes", [True, False])
@pytest.mark.parametrize("moment", range(3))
def test_a_teacher_that_comes_or_goes_between_two_questions_is_a_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, comes: bool
) -> None:
    """Whenever another process ends its add or its removal, nobody is told that something else stands there."""
    storage, other = LocalStorage(tmp_path / "zoo"), tmp_path / "other"
    there = storage.root / "same"
    storage.commit("same", {CARD_FILE: b"{}"})
    if comes:
        os.rename(there, other)
    questions = iter(range(100))
    for name in ("stat", "lstat"):
        asked = getattr(os, name)

        def ask(path: Any, *args: Any, asked: Any = asked, **options: Any) -> Any:
            if str(path).startswith(str(there)) and next(questions) == moment:
                os.rename(*((other, there) if comes else (there, other)))
            return asked(path, *args, **options)

        monkeypatch.setattr(os, name, ask)
    refusals = []
    try:
        storage.check_writable("same")
        storage.commit("same", {CARD_FILE: b"{}"})
    except PreceptorError as error:
        refusals.append(str(error))
    monkeypatch.undo()
    assert all("has a teacher 'same' already" in refusal for refusal in refusals)
    assert bool(refusals) == (comes or moment == 2)  # by then its card had been seen
