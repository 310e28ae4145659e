"""``preceptor demo``: the whole story on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from preceptor.cli.console import emit_json, say, show_ranking, to_stderr
from preceptor.cli.options import AsJson

if TYPE_CHECKING:
    from preceptor.core import Ranking

NEXT = """Now your own data (a folder with a folder of images for each class), with a teacher that you trust:
  preceptor zoo add zoo/ timm:resnet18 --name mine --weights mine.pth --classes cat,dog
  preceptor rank zoo/ photos/
  preceptor run zoo/ photos/ --student mobilenet-0.5 --image-size 96 --out runs/photos"""


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the zoo, the ranking, the runs and the report.")
    ] = Path("preceptor-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many students to train of each kind.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show the whole story on letters and digits: offline, in under two minutes.

    Trains a small zoo on rendered characters, ranks it for reading digits from few samples, distils from the first
    and the last teacher and without one, and says what it gained. The same command goes on where it was stopped.

    Example: preceptor demo --out /tmp/demo
    """
    notify = to_stderr if as_json else say
    notify("Letters teach digits. Starting …")  # importing torch takes seconds
    from preceptor.demo import run_demo

    outcome = run_demo(out, seeds=seeds, notify=notify, show_ranking=_ignore if as_json else _show)
    if as_json:
        emit_json(outcome)
        return
    say(f"6. The report: {Path(outcome['report']).resolve()}   ({outcome['seconds']:.0f} s in all)")
    say(NEXT)


def _ignore(ranking: Ranking) -> None:
    """With ``--json`` the ranking is in the document."""


def _show(ranking: Ranking) -> None:
    from preceptor.rank.table import summary

    show_ranking(ranking, list(ranking.rows[0].scores))
    for line in summary(ranking):
        say(f"  {line}")
