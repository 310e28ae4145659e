"""The cache of extracted features: memory-mapped, atomic, shared by processes, with a size limit."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from preceptor.core import Outputs, PreceptorError
from preceptor.files import cache_folder, check_can_write
from preceptor.zoo.staging import discard, hidden_path, sweep

DEFAULT_LIMIT = 20 * 2**30
LIMIT_VARIABLE = "PRECEPTOR_CACHE_LIMIT"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_META = "meta.json"
_LOCKS = ".locks"
_TOTAL = ".total"  # bytes in the cache at most, for all processes
_SPARE = 20  # one entry in so many goes beside those that must, so that not every later one passes the limit

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # says nothing about the file that was to be opened

_swept: set[Path] = set()  # folders that this process has cleared of what killed ones left

Rows = tuple[np.ndarray, np.ndarray]  # features (B, d) and logits (B, C_T) of a batch


@dataclass(frozen=True)
class CacheEntry:
    """One teacher's outputs for one split."""

    key: str
    teacher: str
    samples: int
    size: int  # bytes on the disk
    used: float  # seconds since the epoch


class FeatureCache:
    """A folder of outputs by key. The one used longest ago goes first when the limit is reached.

    Args:
        root: The cache's folder; by default `preceptor.files.cache_folder`.
        limit: Bytes; by default ``$PRECEPTOR_CACHE_LIMIT`` (such as ``5GB``), or 20 GiB.
    """

    def __init__(self, root: str | Path | None = None, limit: int | None = None) -> None:
        self.root = Path(root if root is not None else cache_folder()) / "features"
        self.limit = (
            limit if limit is not None else parse_size(os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT)
        )

    @staticmethod
    def key(parts: Mapping[str, Any]) -> str:
        """A name for what `parts` determine."""
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]

    def lock(self, key: str) -> FileLock:
        """Held by the process that computes `key`, so that others wait for it instead of computing it too.

        Its file is empty and stays: who had opened it before it was removed would hold a lock that nobody else sees.
        """
        return FileLock(self._make(self.root / _LOCKS) / f"{key}.lock")

    def _make(self, folder: Path) -> Path:
        """The folder, made where it is missing."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        return folder

    def _unwritable(self, error: OSError) -> PreceptorError:
        return PreceptorError(
            f"the cache in {self.root} cannot be written ({error.strerror}); "
            "set PRECEPTOR_CACHE to a folder of yours"
        )

    def check_writable(self) -> None:
        """Raise the one sentence about a cache that nothing can be written to."""
        self._make(self.root)
        try:
            check_can_write(self.root / _TOTAL)
        except OSError as error:
            raise self._unwritable(error) from error

    def get(self, key: str) -> Outputs | None:
        """What is stored under `key`, memory-mapped; None where there is nothing."""
        folder = self.root / key
        try:
            stored = _mapped(folder)
        except (FileNotFoundError, NotADirectoryError):  # never there, or thrown out between these lines
            return None
        except (ValueError, EOFError, OSError) as error:
            if getattr(error, "errno", None) in _EXHAUSTED:
                raise
            discard(folder)  # damaged from outside; it can be computed again
            return None
        with contextlib.suppress(OSError):  # thrown out since, or in a cache that may only be read
            os.utime(folder / _META)
        return stored

    def put(self, key: str, batches: Iterable[Rows], labels: np.ndarray, about: Mapping[str, Any]) -> Outputs:
        """Store outputs as their batches arrive; others see them whole or not at all. Returns them mapped."""
        self._make(self.root)
        if self.root not in _swept:
            sweep(self.root)
            _swept.add(self.root)
        staging = hidden_path(self.root, "staging")
        staging.mkdir()
        try:
            _write_rows(staging, batches, len(labels))
            np.save(staging / "labels.npy", labels)
            (staging / _META).write_text(
                json.dumps({"samples": len(labels), "created": time.time(), **about})
            )
            stored = _mapped(staging)  # what is mapped stays readable when others throw its file out
            total = self._count(_size(staging))  # before others see it: a crash leaves the count too high
            discard(self.root / key)
            os.rename(staging, self.root / key)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        if total > self.limit:
            self.evict()
        return stored

    def entries(self) -> list[CacheEntry]:
        """What is stored, the most recently used first."""
        found = []
        for meta in self.root.glob("[!.]*/" + _META):  # hidden folders are not whole yet, or no more
            with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
                about = json.loads(meta.read_text())
                size, used = _size(meta.parent), meta.stat().st_mtime
                found.append(CacheEntry(meta.parent.name, about["teacher"], about["samples"], size, used))
        return sorted(found, key=lambda entry: -entry.used)

    def evict(self) -> int:
        """Throw out what was used longest ago until the limit holds; returns how many.

        Where the limit was passed, one entry in twenty goes beside those that must: to look is to read every
        entry, and in a full cache each new one would call for it.
        """
        with self._total_lock():
            entries = self.entries()
            total, gone = sum(entry.size for entry in entries), 0
            spare = len(entries) // _SPARE if total > self.limit else 0
            while entries and (total > self.limit or spare > 0):
                spare -= total <= self.limit
                entry = entries.pop()
                total -= entry.size
                gone += discard(self.root / entry.key)
            self._write_total(total)
        return gone

    def _count(self, size: int) -> int:
        """Add to the running total, and return it; where there is none, everything is added up.

        Only `evict` takes from it. So it can be too high, after which `evict` looks and sets it right.
        """
        with self._total_lock():
            try:
                total = int((self.root / _TOTAL).read_text())
            except (FileNotFoundError, ValueError):
                total = sum(entry.size for entry in self.entries())
            self._write_total(total + size)
        return total + size

    def _total_lock(self) -> FileLock:
        return self.lock(_TOTAL)

    def _write_total(self, total: int) -> None:
        staging = hidden_path(self.root, "total")
        try:
            staging.write_text(str(total))
            os.replace(staging, self.root / _TOTAL)
        finally:
            staging.unlink(missing_ok=True)

    def clear(self) -> int:
        """Throw out everything but what others are writing; returns how many entries there were."""
        if not self.root.is_dir():
            return 0
        with self._total_lock():
            gone = sum(discard(path) for path in self.root.glob("[!.]*"))
            self._write_total(0)
        sweep(self.root)
        return gone


def _mapped(folder: Path) -> Outputs:
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("features", "logits")}
    return Outputs(**arrays, labels=np.load(folder / "labels.npy"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _write_rows(folder: Path, batches: Iterable[Rows], total: int) -> None:
    """Write features and logits row by row: a full disk is an error here, and would crash a memory map."""
    with open(folder / "features.npy", "xb") as features, open(folder / "logits.npy", "xb") as logits:
        written = 0
        for batch in batches:
            for stream, rows in zip((features, logits), batch, strict=True):
                if written == 0:
                    header = {
                        "descr": rows.dtype.str,
                        "fortran_order": False,
                        "shape": (total, rows.shape[1]),
                    }
                    np.lib.format.write_array_header_1_0(stream, header)
                stream.write(np.ascontiguousarray(rows).data)
            written += len(batch[0])
        if written != total:
            raise PreceptorError(f"{written} rows of features came for {total} samples")
        for stream in (features, logits):
            stream.flush()
            os.fsync(stream.fileno())


def parse_size(text: str | int) -> int:
    """Bytes out of a number or a text such as ``800M`` or ``5GB``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(text).lower())
    if match is None:
        raise PreceptorError(f"{text!r} is no size for the cache; write it as 800M or 5GB")
    return int(float(match[1]) * _UNITS[match[2]])
