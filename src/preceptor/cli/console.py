"""What every command shares: one place for output, progress, errors and exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from preceptor.core import Ranking


UNCUT = 100_000  # letters; a table takes no more than it needs


def say(text: str = "") -> None:
    """A line for people, on standard output."""
    typer.echo(text)


def to_stderr(text: str) -> None:
    """A line for people that is no part of the result."""
    typer.echo(text, err=True)


def emit_json(value: Any) -> None:
    """The one JSON document of a ``--json`` call, on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def first_process() -> bool:
    """Under torchrun only the first process speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def terminal_width() -> int | None:
    """Letters in a line of the terminal; None in a pipe."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def show_table(table: Table) -> None:
    """A rich table; in a pipe it is plain text that is never cut to a terminal's width."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=UNCUT)
    console.print(table)


def show_ranking(ranking: Ranking, metrics: Sequence[str], top: int | None = None) -> None:
    """Its rows, in as many tables as the terminal's width asks for."""
    from preceptor.cli.tables import ranking_tables

    for table in ranking_tables(ranking.rows, metrics, by=ranking.metric, top=top, width=terminal_width()):
        show_table(table)


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Progress]:
    """A progress bar on standard error on a terminal, nothing in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    ) as bar:
        bar.add_task(description, total=total)
        yield bar
