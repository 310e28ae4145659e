"""Live progress on a terminal, nothing in a pipe; TensorBoard where it is asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preceptor.core import PreceptorError


class Reporter:
    """Shows epoch, step rate, losses by term, accuracy and remaining time; keeps quiet where nobody looks."""

    def __init__(
        self, title: str, *, epochs: int, total_steps: int, show: bool | None, tensorboard: Path | None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self.title, self.epochs = title, epochs
        self.visible = sys.stderr.isatty() if show is None else show
        # A narrow terminal cuts the last column, which takes what the others leave.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TimeRemainingColumn(),
            TextColumn(
                "{task.fields[accuracy]} {task.fields[rate]} {task.fields[losses]}",
                table_column=Column(no_wrap=True, ratio=1),
            ),
        )
        console = Console(stderr=True)
        self.bar = Progress(*columns, console=console, disable=not self.visible, transient=True, expand=True)
        self.task = self.bar.add_task(
            self._description(0), total=total_steps, rate="", losses="", accuracy=""
        )
        self.writer = _writer(tensorboard) if tensorboard is not None else None
        self._since, self._steps = time.monotonic(), 0

    def _description(self, epoch: int) -> str:
        return f"{self.title} epoch {min(epoch + 1, self.epochs)}/{self.epochs}"

    def start(self, step: int, epoch: int) -> None:
        """Begin, or go on, at `step`."""
        self.bar.start()
        self.bar.update(self.task, completed=step, description=self._description(epoch))

    def advance(self) -> None:
        """One step done; reads nothing from the device."""
        self._steps += 1
        if self.visible:
            self.bar.advance(self.task)

    def losses(self, terms: Mapping[str, float]) -> None:
        """Show the last step's terms and the rate since the last look."""
        now = time.monotonic()
        rate = self._steps / max(now - self._since, 1e-9)
        self._since, self._steps = now, 0
        shown = " ".join(f"{name} {value:.3f}" for name, value in terms.items())
        self.bar.update(self.task, rate=f"{rate:.1f} steps/s", losses=shown)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Show and store what an epoch came to; the next one begins."""
        kinds = ("train", "validation", "test")
        known = {
            kind: record[f"{kind}_accuracy"] for kind in kinds if record.get(f"{kind}_accuracy") is not None
        }
        shown = " ".join(f"{kind} {100 * value:.1f} %" for kind, value in known.items())
        self.bar.update(self.task, accuracy=shown, description=self._description(record["epoch"] + 1))
        if self.writer is None:
            return
        scalars = {
            "loss": record["loss"],
            "lr": record["lr"],
            **{f"accuracy/{k}": v for k, v in known.items()},
        }
        for name, value in {**scalars, **{f"terms/{k}": v for k, v in record["terms"].items()}}.items():
            self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Take the bar away and close the files."""
        self.bar.stop()
        if self.writer is not None:
            self.writer.close()


def _writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise PreceptorError(
            f"tensorboard (--tensorboard) needs a package that is not installed ({error.name}); "
            "install preceptor[tensorboard] or leave it out: log.jsonl holds the same"
        ) from None
    return SummaryWriter(str(folder))
