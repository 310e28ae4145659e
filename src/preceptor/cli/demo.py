"""``preceptor demo``: the whole story on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from preceptor.cli.console import emit_json, say


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the zoo, the ranking, the runs and the report.")] = Path(
        "preceptor-demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="How many students to train of each kind.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Show the whole story on letters and digits: offline, in about a minute.

    Example: preceptor demo --out /tmp/demo
    """
    from preceptor.demo import run_demo

    outcome = run_demo(out, seeds=seeds, notify=(lambda text: typer.echo(text, err=True)) if json else say)
    if json:
        emit_json(outcome)
