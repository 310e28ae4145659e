"""The sign of the home folder, which a shell leaves alone behind an = or a colon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preceptor.cli import main
from preceptor.files import cache_folder


def test_it_is_found_wherever_a_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for line in (
        "train glyphs:digits --arch cnn-2 --epochs 1 --out=~/run --device cpu",
        "report ~/run --out=~/run.html",
        "zoo add ~/zoo run:~/run --name mine",
        "rank ~/zoo glyphs:digits --sample 40 --out=~/ranked --report=~/ranked.html --device cpu",
    ):
        monkeypatch.setattr(sys, "argv", ["preceptor", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, line
    assert {path.name for path in tmp_path.iterdir()} >= {"run", "run.html", "zoo", "ranked", "ranked.html"}
    assert not (tmp_path / "~").exists()


def test_the_cache_lies_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PRECEPTOR_CACHE", "~/kept")
    assert cache_folder() == tmp_path / "kept"
