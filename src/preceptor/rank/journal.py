"""The journal of finished assessments: what makes a ranking resumable and incremental.

One small JSON file for each teacher and setting, with the scores of every metric computed so far; beside it,
where there are any, the arrays that only leaders need (values of each instance, cost matrix, mean plan).
A file's name is the hash of everything its numbers depend on, so an entry is right or it is not found.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import preceptor
from preceptor.zoo import Card

SCHEMA = 1
# What an assessment's numbers come out of: a change in these packages makes every older entry unfindable.
SOURCES = (
    "core.py",
    "ot",
    "metrics",
    "rank/measure.py",
    "zoo/features.py",
    "zoo/preprocessing.py",
    "data/images.py",
)
UNIMPORTANT = {"name", "created", "licence", "versions", "accuracy"}  # of a card, for its teacher's numbers


@dataclass
class Entry:
    """What is known of one teacher under one setting."""

    scores: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(
        default_factory=dict
    )  # metric -> why it cannot be had; never a passing failure
    forward_seconds: float = 0.0
    metric_seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def forget(self, metrics: Iterable[str]) -> None:
        """Drop what is known of these metrics, so that they are computed again."""
        for metric in metrics:
            for known in (self.scores, self.reasons, self.metric_seconds):
                known.pop(metric, None)


class Journal:
    """Entries of one setting (task, options, code) in a folder that several processes may share."""

    def __init__(self, folder: Path, setting: Mapping[str, Any]) -> None:
        self.setting = {**setting, "code": code_version(), "schema": SCHEMA}
        self.folder = folder / digest(self.setting)

    def read(self, card: Card) -> Entry | None:
        """The entry of the teacher, or None where there is none that can be read."""
        try:
            return Entry(**json.loads(self._path(card, ".json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, card: Card, entry: Entry, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Keep the entry; the arrays first, so that an entry never lacks them."""
        path = self._path(card, ".json")
        if arrays:
            keep_arrays(path.with_suffix(".npz"), {**self.arrays(card), **arrays})
        keep(path, json.dumps(asdict(entry)).encode())

    def arrays(self, card: Card) -> dict[str, np.ndarray]:
        """The arrays kept beside the entry; empty where there are none."""
        return read_arrays(self._path(card, ".npz")) or {}

    def _path(self, card: Card, suffix: str) -> Path:
        name = teacher_hash(card)
        return self.folder / name[:2] / f"{name}{suffix}"


def teacher_hash(card: Card) -> str:
    """The hash of all that a teacher's numbers depend on: its files, head, classes and preprocessing."""
    return digest(card.model_dump(mode="json", exclude=UNIMPORTANT))


@cache
def code_version() -> str:
    """The package's version and a hash over the sources that an assessment's numbers come out of."""
    root = Path(preceptor.__file__).parent
    digest = hashlib.sha256()
    for source in SOURCES:
        path = root / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{preceptor.__version__}+{digest.hexdigest()[:16]}"


def keep(path: Path, data: bytes) -> None:
    """Write a file that readers see whole or not at all, without waiting for the disk.

    What lies here can be computed again, and readers take a damaged file for a missing one: a power cut may
    cost the last entries, and a zoo of thousands does not wait for thousands of flushes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def keep_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name to one file, as `keep` does."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    keep(path, packed.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """What `keep_arrays` wrote; None where it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def digest(value: Any) -> str:
    """The hash of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
