"""``preceptor run``: rank, then distil, and keep the student only if the teacher did it good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from preceptor.cli.console import emit_json, progress, say, to_stderr
from preceptor.cli.options import AsJson, TrustCode, parse_options
from preceptor.cli.task import Classes, OnBadImage, Unlabelled, Window, read_more, read_task
from preceptor.cli.train import Options

if TYPE_CHECKING:
    from rich.progress import Progress

    from preceptor.core import RankingRow


def run(
    zoo: Annotated[str, typer.Argument(metavar="ZOO", help="Folder or URL of the zoo.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="The task: a folder, an .npz, cifar10:ROOT, cifar100:ROOT, glyphs:NAME."
        ),
    ],
    student: Annotated[str, typer.Option(help="Architecture of the student, such as wrn-16-1.")] = "wrn-16-1",
    out: Annotated[Path, typer.Option(help="Folder for everything that comes out.")] = Path("runs/student"),
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="How to distil; if repeated, validation data choose. [default: sinkhorn and sinkhorn+probe; with an "
            "option of a method the one that has it]"
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", "-m", help="Metrics of the ranking; the first decides. [default: bridge, sinkhorn]"
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Try so many of the best teachers, keep the best on validation data.")
    ] = 1,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="How to train: small, mixed, patient, … [default: patient under 100 images a class, or mixed]"
        ),
    ] = None,
    option: Options = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Bring images to this size.")] = None,
    classes: Classes = None,
    window: Window = None,
    on_bad_image: OnBadImage = "fail",
    unlabelled: Unlabelled = None,
    validation: Annotated[
        float,
        typer.Option(help="Share of each training class that decides between teachers, methods and none."),
    ] = 0.2,
    refit: Annotated[bool, typer.Option(help="Train the kept student once more, on all labels.")] = True,
    seed: Annotated[
        int, typer.Option(min=0, help="Of held-out data, weights, data order and augmentation.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    trust_code: TrustCode = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    as_json: AsJson = False,
) -> None:
    """Rank the teachers in ZOO for DATA, distil the best, and say what it gained.

    The plain student is trained as well, and kept if no teacher helps: you never lose accuracy without being told.
    Images in colour: it also finds out whether random views of them do good (-o augment=NAME settles that).

    Example: preceptor run zoo/ photos/ --student mobilenet-0.5 --image-size 96 --out runs/photos
    """
    from preceptor.metrics import DEFAULT_METRICS
    from preceptor.pipeline import run as run_pipeline

    sized = {} if image_size is None else {"image_size": image_size}
    options = sized | parse_options(option or [], run, run_pipeline)
    task = read_task(data, classes, window, on_bad_image, tested=True)
    more = read_more(unlabelled, on_bad_image)
    with _ranking_bar(zoo) as on_row:
        result = run_pipeline(
            zoo, task, student=student, out=out, method=method or None, metrics=tuple(metric or DEFAULT_METRICS),
            top=top, recipe=recipe, validation=validation, refit=refit, seed=seed, device=device, resume=resume,
            report=report, trust_code=trust_code, unlabelled=more, notify=to_stderr if as_json else say,
            rank_options={"on_row": on_row}, **options,
        )  # fmt: skip
    if as_json:
        emit_json({**result.to_json(), "path": str(result.path)})
        return
    say(f"student in {result.path}" + (f", report in {result.path / 'report.html'}" if report else ""))


@contextmanager
def _ranking_bar(zoo: str) -> Iterator[Callable[[RankingRow], None]]:
    """A bar from the first ranked teacher to the last, between what is said before and the bars of the trainings."""
    from preceptor.zoo import Zoo

    total = len(Zoo(zoo).names())
    with ExitStack() as shown:
        bars: list[Progress] = []

        def on_row(row: RankingRow) -> None:
            if not bars:
                bars.append(shown.enter_context(progress("ranking teachers", total)))
            bars[0].advance(bars[0].task_ids[0])
            if bars[0].finished:
                shown.close()

        yield on_row
