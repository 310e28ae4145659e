"""Looking through a folder of images once: sizes, hashes and damage, remembered between sessions."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from preceptor.core import PreceptorError
from preceptor.data.identity import identity
from preceptor.data.images import decode, read_bytes
from preceptor.files import cache_folder, explain, write_atomically

SCHEMA = 6


@dataclass(frozen=True)
class ImageFile:
    """One file of a folder: where it lies, what it holds, or why it cannot be read."""

    name: str  # path relative to the folder, with forward slashes
    size: int
    sha256: str
    identity: str  # of what it shows; empty where it cannot be read
    shape: tuple[int, int, int] | None  # (C, H, W); None where it cannot be read
    problem: str = ""


def scan(root: Path, names: Sequence[str]) -> list[ImageFile]:
    """Decode and hash every file once; files unchanged since an earlier scan (by their stamp) are not read."""
    memory = (
        cache_folder() / "scans" / (hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32] + ".json")
    )
    known = _recall(memory)
    stamps = {name: _stamp(root / name) for name in names}
    stale = [name for name in names if name not in known or known[name][0] != stamps[name]]
    with ThreadPoolExecutor(max_workers=min(32, (os.cpu_count() or 1) + 1)) as pool:
        for name, found in zip(stale, pool.map(lambda name: _inspect(root / name, name), stale), strict=True):
            known[name] = [stamps[name], *found]
    if stale:
        _remember(memory, known)
    return [_as_file(name, known[name]) for name in names]


def _stamp(path: Path) -> list[int]:
    """What changes with a file's content; zeros where there is no file, as behind a link that leads nowhere.

    Archives and rsync set the time of writing, so that other content may come with the same size and time. The time of
    the last change cannot be set; where a system keeps none, the file's number tells the one from the other.
    """
    try:
        stat = path.stat()
    except OSError:  # `_inspect` tells why
        return [0, 0, 0, 0]
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _inspect(path: Path, name: str) -> tuple[str, str, tuple[int, ...] | None, str]:
    """Hash of the file, identity and shape of the image, or why it cannot be read."""
    digest = ""
    try:
        content = read_bytes(path)
        digest = hashlib.sha256(content).hexdigest()
        pixels = decode(content, name)
        return digest, identity(pixels), pixels.shape, ""
    except PreceptorError as error:
        return digest, "", None, str(error)
    except OSError as error:
        return digest, "", None, explain(error)


def _as_file(name: str, entry: list) -> ImageFile:
    stamp, digest, shown, shape, problem = entry
    return ImageFile(name, stamp[0], digest, shown, None if shape is None else tuple(shape), problem)


def _recall(memory: Path) -> dict[str, list]:
    """What an earlier scan found; a memory that is missing, damaged or of another schema counts as empty."""
    try:
        stored = json.loads(memory.read_text(encoding="utf-8"))
        entries = stored["files"] if stored["schema"] == SCHEMA else {}
        # What could not be opened has no hash: the next scan tries again, as a right may have been given since.
        return {name: entry for name, entry in entries.items() if len(entry) == 5 and entry[1]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remember(memory: Path, known: dict[str, list]) -> None:
    """Write whole or not at all; a read-only home only costs the speed of the next scan."""
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(memory, json.dumps({"schema": SCHEMA, "files": known}).encode())
    except OSError:
        return
