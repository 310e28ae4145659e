"""Reading a task, as all commands that take DATA do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from preceptor.data.split import Split
    from preceptor.data.task import Task

Classes = Annotated[str | None, typer.Option(help="Only these classes of the data: a,b,c.")]
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

    return None if unlabelled is None else read_unlabelled(unlabelled, on_bad_image)


def read_task(data: str, classes: str | None, window: str | None, on_bad_image: str) -> Task:
    """The task; images that were left out are named on standard error."""
    from preceptor.data.task import Task

    task = Task(data, classes=classes, window=window, on_bad_image=on_bad_image)
    for path in task.bad_images:
        typer.echo(f"left out, cannot be read: {path}", err=True)
    return task
