"""Run or ranking folders -> one self-contained HTML file: no network, light and dark, for phones and for paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from preceptor.core import Ranking
from preceptor.files import check_can_write, local_path, write_atomically
from preceptor.report.page import render
from preceptor.report.story import Story, read_story

if TYPE_CHECKING:
    from preceptor.data import Task

__all__ = ["Story", "read_story", "write_report"]


def write_report(
    source: Ranking | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    task: Task | None = None,
    title: str | None = None,
) -> Path:
    """Write the report of a ranking or of a run.

    Args:
        source: A `Ranking`, a folder with ``ranking.json``, a run folder, or the folder of a whole pipeline.
        path: The HTML file to write.
        task: The data, for thumbnails and sample predictions; without it the report has none.
        title: Heading of the page.

    Returns:
        The path of the file.
    """
    target = local_path(path)
    check_can_write(target)  # before the predictions for its pictures, which take a while
    story = read_story(source, task=task, title=title)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, render(story).encode())
    return target
