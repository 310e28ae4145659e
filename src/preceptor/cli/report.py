"""``preceptor report``: a run or a ranking as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from preceptor.cli.console import emit_json, say
from preceptor.cli.options import AsJson
from preceptor.cli.task import Classes, OnBadImage, Window, read_task
from preceptor.files import check_can_write, local_path

NO_PICTURES = ", without pictures; --data DATA adds samples and what the student says about them"


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A run folder, a pipeline's folder, or a ranking (folder or JSON file)."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The HTML file. [default: report.html inside SOURCE; "
            "for a JSON file its name with .html, beside it]"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The task's data, for thumbnails and sample predictions.")
    ] = None,
    classes: Classes = None,
    window: Window = None,
    on_bad_image: OnBadImage = "fail",
    as_json: AsJson = False,
) -> None:
    """Write a run or a ranking as one self-contained HTML page.

    Example: preceptor report runs/birds --data photos/
    """
    from preceptor.distill.run_folder import RunFolder
    from preceptor.report import write_report

    source = local_path(source)
    target = _beside(source) if out is None else local_path(out)
    check_can_write(target)  # before the data is read
    task = None if data is None else read_task(data, classes, window, on_bad_image)
    written = write_report(source, target, task=task)
    if as_json:
        emit_json({"report": str(written), "bytes": written.stat().st_size})
    else:
        say(f"wrote {written}" + ("" if data or not RunFolder(source).exists else NO_PICTURES))


def _beside(source: Path) -> Path:
    """Where the page of a source lies; that of a file spares report.html, which is that of the whole folder."""
    if source.is_dir():
        return source / "report.html"
    return source.with_name(source.name.removesuffix(".json") + ".html")
