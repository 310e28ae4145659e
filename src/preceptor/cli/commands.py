"""The commands, in the order in which one meets them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from preceptor.cli.cache import cache_app
from preceptor.cli.demo import demo
from preceptor.cli.doctor import doctor
from preceptor.cli.rank import rank
from preceptor.cli.report import report
from preceptor.cli.run import run
from preceptor.cli.train import distill, train
from preceptor.cli.use import export, predict
from preceptor.cli.zoo import zoo_app

IN_ORDER_OF_USE = (
    "demo",
    "doctor",
    "zoo",
    "train",
    "rank",
    "run",
    "distill",
    "predict",
    "export",
    "report",
    "cache",
)


class _InOrderOfUse(TyperGroup):
    """Typer would list groups of commands after all single commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=IN_ORDER_OF_USE.index)


app = typer.Typer(
    name="preceptor",
    cls=_InOrderOfUse,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # to rich's own markup a word in square brackets is a style, and not shown
    help="Pick the right teacher out of a zoo of pre-trained classifiers, and distil it into your student "
    "although its classes are others than yours.\n\nNew here? Try: preceptor demo",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        import preceptor

        typer.echo(f"preceptor {preceptor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    pass


app.command(rich_help_panel="Start")(demo)
app.command(rich_help_panel="Start")(doctor)
app.add_typer(zoo_app, name="zoo", rich_help_panel="Teachers")
app.command(rich_help_panel="Teachers")(train)
app.command(rich_help_panel="Teachers")(rank)
app.command(rich_help_panel="Student")(run)
app.command(rich_help_panel="Student")(distill)
app.command(rich_help_panel="Use")(predict)
app.command(rich_help_panel="Use")(export)
app.command(rich_help_panel="Use")(report)
app.add_typer(cache_app, name="cache", rich_help_panel="Use")
