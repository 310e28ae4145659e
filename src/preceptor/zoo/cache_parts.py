"""The whole cache, part by part: what lies in it beside features, how large it is, and throwing it all out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from preceptor.zoo.cache import FeatureCache
from preceptor.zoo.staging import discard, sweep

# Folders in the cache, each with what it is for; whoever adds one names it here.
PARTS = {
    "features": "what teachers say about the samples of tasks",
    "heads": "classifier rows and class centres of teachers",
    "rankings": "journal of finished assessments",
    "students": "students that sinkhorn-single and sinkhorn-exact trained",
    "scans": "what was found in folders of images",
}


@dataclass(frozen=True)
class Part:
    """One part of the cache: how many files, and how many bytes in all."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Cleared:
    """How many entries of each part are gone, and how many students were left because somebody trains them."""

    parts: dict[str, int]
    in_use: int


def measure_parts(root: Path) -> dict[str, Part]:
    """Size of each part of the cache in `root`."""
    sizes = {name: list(_file_sizes(root / name)) for name in PARTS}
    return {name: Part(len(found), sum(found)) for name, found in sizes.items()}


def clear_parts(root: Path) -> Cleared:
    """Throw out all parts of the cache in `root`, but nothing that another process is writing under a lock."""
    gone = {"features": FeatureCache(root).clear()}
    for name in ("heads", "rankings", "scans"):
        gone[name] = sum(_remove(path) for path in (root / name).glob("[!.]*"))  # hidden: being written
    students = [path for path in (root / "students").glob("[!.]*") if path.is_dir()]
    for name in ("heads", "rankings", "scans", "students"):
        sweep(root / name)
    gone["students"] = sum(_remove_locked(folder) for folder in students)
    return Cleared(gone, len(students) - gone["students"])


def _file_sizes(folder: Path) -> Iterator[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".lock"):  # empty, and left when a part is cleared
                continue
            with contextlib.suppress(FileNotFoundError):  # others may clear at the same time
                yield os.stat(os.path.join(base, name)).st_size


def _remove(path: Path) -> bool:
    if path.is_dir():
        return discard(path)
    path.unlink(missing_ok=True)
    return True


def _remove_locked(folder: Path) -> bool:
    """Remove a student's folder; False where somebody holds its lock.

    The lock's file stays: who had opened it before it was removed would hold a lock that nobody else sees.
    """
    try:
        with FileLock(folder.with_suffix(".lock"), timeout=0):
            discard(folder)
    except Timeout:
        return False
    return True
