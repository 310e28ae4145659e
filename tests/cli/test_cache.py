"""The cache's commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout
from typer.testing import CliRunner

from preceptor.cli.cache import cache_app
from preceptor.rank import rank
from preceptor.zoo import FeatureCache, Zoo
from preceptor.zoo.cache_parts import PARTS
from tests.zoo.conftest import make_run, make_task


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cache_app, list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, where the user's desktop says."""
    monkeypatch.delenv("PRECEPTOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "5MB")
    return tmp_path / "preceptor"


def put() -> None:
    rows = np.ones((4, 3), np.float32)
    FeatureCache().put("k" * 40, iter([(rows, rows)]), np.zeros(4, np.int64), {"teacher": "pets"})


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12345")


def test_show(cache: Path) -> None:
    assert "features: 0 entries, 0.0 MiB of at most 5 MiB" in call("show")
    put()
    fill(cache, "heads/a.npz", "rankings/setting/ab/c.json", "rankings/setting/ab/c.npz")
    shown = call("show")
    assert shown.startswith(f"{cache}: 0.0 MiB\n")
    assert all(f"  {part} " in shown for part in ("features", "heads", "rankings", "students", "scans"))
    assert "features: 1 entry," in shown
    assert "pets" in shown
    assert "kkkkkkkkkkkk" in shown
    about = json.loads(call("show", "--json"))
    assert about["location"] == str(cache)
    assert about["limit"] == 5 * 2**20
    assert [(entry["teacher"], entry["samples"]) for entry in about["entries"]] == [("pets", 4)]
    assert about["parts"]["rankings"] == {"files": 2, "bytes": 10}
    assert about["parts"]["students"] == {"files": 0, "bytes": 0}
    assert about["parts"]["features"]["bytes"] >= about["entries"][0]["size"] > 0
    assert about["bytes"] == sum(part["bytes"] for part in about["parts"].values())


def test_clear_leaves_nothing_but_what_is_not_the_caches(cache: Path) -> None:
    assert call("clear") == "cleared 0 entries\n"
    assert not cache.exists()
    put()
    with FeatureCache().lock("free"):
        pass
    fill(cache, "heads/a.npz", "heads/b.npz", "rankings/one/ab/c.json", "rankings/two/ab/c.json", "scans/a.json",
         "students/abc/logits.npy", "students/abc.lock", "mine.txt")  # fmt: skip
    parts = {"features": 1, "heads": 2, "rankings": 2, "scans": 1, "students": 1}
    assert json.loads(call("clear", "--json")) == {"cleared": 7, "parts": parts, "in_use": 0}
    left = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    locks = {"features/.locks/.total.lock", "features/.locks/free.lock", "students/abc.lock"}
    assert left == {"mine.txt", "features/.total"} | locks
    assert json.loads(call("show", "--json"))["parts"]["students"] == {"files": 0, "bytes": 0}
    assert json.loads(call("show", "--json"))["entries"] == []


def test_clear_leaves_what_another_process_is_at(cache: Path) -> None:
    fill(cache, "students/abc/run/log.jsonl", "students/def/logits.npy", "heads/.a.npz.0123abcd.part")
    with FileLock(cache / "students" / "abc.lock"), FeatureCache().lock("busy"):
        told = "cleared 1 entry: 1 of students\nleft 1 student that another process is training\n"
        assert call("clear") == told
        assert (cache / "features" / ".locks" / "busy.lock").exists()
    assert (cache / "heads" / ".a.npz.0123abcd.part").exists()
    assert [path.name for path in (cache / "students").iterdir() if path.is_dir()] == ["abc"]
    assert json.loads(call("clear", "--json"))["parts"]["students"] == 1


def test_who_opened_a_lock_before_the_cache_was_cleared_keeps_others_out_after(cache: Path) -> None:
    """Between opening and locking a file there is a moment, and older versions of filelock do not look again."""
    fcntl = pytest.importorskip("fcntl")
    fill(cache, "students/abc/logits.npy", "students/abc.lock")
    with FeatureCache().lock("k"):
        pass
    for path in (cache / "students/abc.lock", cache / "features/.locks/k.lock"):
        with path.open("r+b") as early:
            call("clear")
            fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with pytest.raises(Timeout):
                FileLock(path).acquire(timeout=0)


def test_what_a_ranking_keeps_is_where_the_commands_look(cache: Path, tmp_path: Path) -> None:
    zoo, task = Zoo(tmp_path / "zoo"), make_task()
    zoo.add(f"run:{make_run(tmp_path / 'run')}", name="a")
    rank(zoo, task, ["leep"], device="cpu")
    parts = json.loads(call("show", "--json"))["parts"]
    assert {name for name, part in parts.items() if part["files"]} == {"features", "heads", "rankings"}
    assert {path.name for path in cache.iterdir()} <= set(PARTS)
