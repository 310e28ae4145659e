"""Training with an eye on the clock: progress is told, a pack at work kept on disk, and put aside when time is over."""

from __future__ import annotations

import io
import math
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.packed import Pack
from preceptor.files import write_atomically

TELL_EVERY, KEEP_EVERY = 30.0, 60.0  # seconds


class TimeIsOver(Exception):
    """The pack at work is kept and goes on another time."""


class Sitting:
    """The time in which packs train.

    Args:
        budget: Seconds.
        log: Where to say how far it is.
        folder: Where packs at work are kept.
    """

    def __init__(self, folder: Path, budget: float = math.inf, log: Callable[[str], None] = print) -> None:
        self.folder, self.budget, self.log = folder, budget, log
        self.started = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.budget - (time.perf_counter() - self.started)

    def check(self) -> None:
        """Raise where there is no time for anything more."""
        if self.left <= 0:
            raise TimeIsOver

    def train(self, pack: Pack, name: str, title: str) -> float:
        """Train a pack from where it was left, if it was; returns its seconds in all.

        Args:
            pack: Students as they are before their training.
            name: Of its file; the same for the same students only.
            title: What the log calls it.
        """
        path = self.folder / f"{name}.pt"
        begun = _read(path) if path.exists() else None
        told = kept = time.perf_counter()

        def go_on() -> bool:
            nonlocal told, kept
            now, over = time.perf_counter(), self.left <= 0
            if now - told >= TELL_EVERY:
                told = now
                pace = pack.seconds / pack.epoch
                self.log(f"{title}: epoch {pack.epoch} of {pack.schedule.epochs}, {pace:.2f} s each, "
                         f"{pace * (pack.schedule.epochs - pack.epoch):.0f} s to go")  # fmt: skip
            if over or now - kept >= KEEP_EVERY:
                kept = now
                self._keep(pack, path)
            return not over

        if begun is not None:
            self.log(f"{title}: goes on after epoch {begun['epoch']} of {pack.schedule.epochs}")
        if not pack.train(go_on, begun):
            self.log(f"{title}: put aside after epoch {pack.epoch} of {pack.schedule.epochs}")
            raise TimeIsOver
        return pack.seconds

    def forget(self, name: str) -> None:
        """Remove what was kept of a pack, once its results are."""
        (self.folder / f"{name}.pt").unlink(missing_ok=True)

    def _keep(self, pack: Pack, path: Path) -> None:
        file = io.BytesIO()
        torch.save(pack.state(), file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, file.getvalue())


def _read(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise SystemExit(f"{path} cannot be read; delete it, and its pack begins anew") from error
