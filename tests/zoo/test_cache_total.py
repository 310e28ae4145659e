"""The running total of the cache: looked through seldom, right among processes."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import FeatureCache

ROWS = np.ones((10, 100), np.float32)
SIZE = 9_000  # of an entry, about: two arrays of 4,000 bytes and the rest


def fill(cache: FeatureCache, keys: Iterator[str] | list[str]) -> None:
    for key in keys:
        cache.put(key, iter([(ROWS, ROWS)]), np.zeros(len(ROWS), np.int64), {"teacher": key})


def stored(cache: FeatureCache) -> int:
    return sum(entry.size for entry in cache.entries())


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each look through the cache read."""
    seen: list[int] = []
    entries = FeatureCache.entries

    def counted(self: FeatureCache):
        found = entries(self)
        seen.append(len(found))
        return found

    monkeypatch.setattr(FeatureCache, "entries", counted)
    return seen


def test_a_cache_below_its_limit_is_looked_through_once(tmp_path: Path, scans: list[int]) -> None:
    for number in range(30):  # a new object each time, as for each teacher of a ranking
        fill(FeatureCache(tmp_path, limit=100 * SIZE), [f"k{number}"])
    assert scans == [0]


def test_an_entry_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, limit=10 * SIZE)
    fill(cache, ["a"])
    (cache.root / "a").rename(cache.root / ".staging-elsewhere-1-abcd")
    assert cache.entries() == []
    cache.limit = 0
    assert cache.evict() == 0  # another process is about to rename it


def test_a_full_cache_is_looked_through_once_in_many_times(tmp_path: Path, scans: list[int]) -> None:
    cache = FeatureCache(tmp_path, limit=100 * SIZE)
    fill(cache, [f"k{number}" for number in range(100)])
    scans.clear()
    fill(cache, [f"l{number}" for number in range(60)])
    assert 1 <= len(scans) <= 60 // 5 + 2
    assert sum(scans) <= 25 * 60  # a constant for each entry written, not the number of those there are
    scans.clear()
    assert stored(cache) <= cache.limit
    assert len(cache.entries()) >= 90


def test_the_limit_holds_after_every_entry(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, limit=25 * SIZE)
    for number in range(70):
        fill(cache, [f"k{number}"])
        assert stored(cache) <= cache.limit
        assert cache.get(f"k{number}") is not None


def test_what_is_thrown_out_by_hand_is_found_missing_when_it_matters(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, limit=10 * SIZE)
    fill(cache, [f"k{number}" for number in range(9)])
    assert cache.clear() == 9
    assert (cache.root / ".total").read_text() == "0"
    fill(cache, [f"l{number}" for number in range(9)])
    for entry in cache.entries()[:5]:
        shutil.rmtree(cache.root / entry.key)  # the total knows nothing of that
    fill(cache, [f"m{number}" for number in range(5)])
    assert len(cache.entries()) == 9


@pytest.mark.parametrize("text", [None, "", "x"])
def test_a_lost_total_is_added_up_again(tmp_path: Path, text: str | None) -> None:
    cache = FeatureCache(tmp_path, limit=3 * SIZE)
    fill(cache, ["a", "b"])
    total = cache.root / ".total"
    total.unlink() if text is None else total.write_text(text)
    fill(cache, ["c", "d", "e"])
    assert stored(cache) <= cache.limit


def test_entries_of_other_processes_count(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from preceptor.zoo import FeatureCache\n"
        f"cache, rows = FeatureCache(Path(sys.argv[1]), limit={10 * SIZE}), np.ones((10, 100), np.float32)\n"
        "for number in range(15):\n"
        "    key = f'{sys.argv[2]}{number}'\n"
        "    cache.put(key, iter([(rows, rows)]), np.zeros(10, np.int64), {'teacher': key})\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "ab"]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    cache = FeatureCache(tmp_path, limit=10 * SIZE)
    assert 0 < stored(cache) <= cache.limit
    assert int((cache.root / ".total").read_text()) >= stored(cache)
    assert not list(cache.root.glob(".staging-*")) + list(cache.root.glob(".total-*"))


def test_a_total_that_a_full_disk_refuses_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = FeatureCache(tmp_path)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        fill(cache, ["a"])
    assert [path.name for path in cache.root.iterdir()] == [".locks"]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    cache = FeatureCache(tmp_path / "taken")
    assert cache.get("k") is None
    for use in (lambda: cache.lock("k"), lambda: fill(cache, ["k"])):
        with pytest.raises(
            PreceptorError, match=r"cannot be written \(Not a directory\); set PRECEPTOR_CACHE to"
        ):
            use()
