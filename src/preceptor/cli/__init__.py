"""The command line. Thin: each command parses, calls the library, and shows what came back.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys

import typer

from preceptor.core import PreceptorError

app = typer.Typer(
    name="preceptor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Pick the right teacher out of a zoo of pre-trained classifiers, and distil it into your student "
    "although its classes are others than yours.",
)


def main() -> None:
    """Entry point: 0 done, 1 failed (one line says what and how to fix it), 2 wrong call."""
    try:
        app()
    except (PreceptorError, OSError) as error:
        typer.echo(f"preceptor: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("preceptor: interrupted; what was finished is kept", err=True)
        sys.exit(1)
