"""Reading a task, as all commands that take DATA do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from preceptor.cli.console import first_process

if TYPE_CHECKING:
    from preceptor.data.split import Split
    from preceptor.data.task import Task

Classes = Annotated[
    str | None, typer.Option(help="Only these classes of the data: a,b,c (with a comma: '\"a, b\",c').")
]
Window = Annotated[str | None, typer.Option(help="Only a window of the classes: START:SIZE[@SEED].")]
OnBadImage = Annotated[
    str, typer.Option("--on-bad-image", help="Images that cannot be read: fail, or skip and name them.")
]
Unlabelled = Annotated[
    str | None, typer.Option(help="More samples, labels not looked at: a folder of images, or any DATA.")
]


def read_more(unlabelled: str | None, on_bad_image: str) -> Split | None:
    """The unlabelled samples, where some were named."""
    from preceptor.data.unlabelled import read_unlabelled

    if unlabelled is None:
        return None
    samples, bad = read_unlabelled(unlabelled, on_bad_image)
    _name_bad(bad)
    return samples


def read_task(
    data: str, classes: str | None, window: str | None, on_bad_image: str, *, tested: bool = False
) -> Task:
    """The task; images that were left out are named on standard error, and so are folders that are no classes.

    Where an accuracy on its test part is going to be `tested`, so is the number of training images that are in it.
    """
    from preceptor.data.task import Task

    task = Task(data, classes=classes, window=window, on_bad_image=on_bad_image)
    _name_bad(task.bad_images)
    if first_process():
        from preceptor.data.folder import merged_folders

        for sentence in merged_folders(task.train):
            typer.echo(sentence, err=True)
    if tested and first_process():
        from preceptor.data.repeats import repeated

        for sentence in repeated(task.train, task.test):
            typer.echo(sentence, err=True)
    return task


def _name_bad(paths: Sequence[str]) -> None:
    for path in paths if first_process() else ():
        typer.echo(f"left out, cannot be read: {path}", err=True)
