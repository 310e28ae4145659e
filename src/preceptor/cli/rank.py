"""``preceptor rank``: every teacher of a zoo, best first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from preceptor.cli.console import progress, say, show_ranking, terminal_width, to_stderr
from preceptor.cli.options import AsJson, TrustCode
from preceptor.cli.task import Classes, OnBadImage, Window, read_task
from preceptor.core import PreceptorError
from preceptor.files import check_can_write, local_path, write_atomically
from preceptor.wording import counted

if TYPE_CHECKING:
    from preceptor.core import Ranking, RankingRow
    from preceptor.data.task import Task

LIVE_ROWS = 20  # of the table that fills while a ranking runs


def rank(
    zoo: Annotated[str, typer.Argument(metavar="ZOO", help="Folder or URL of the zoo.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="The task: a folder, an .npz, cifar10:ROOT, cifar100:ROOT, glyphs:NAME."
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="A metric, or all; may be repeated. [default: bridge, sinkhorn]"),
    ] = None,
    by: Annotated[str | None, typer.Option(help="The metric that decides. [default: the first]")] = None,
    classes: Classes = None,
    window: Window = None,
    on_bad_image: OnBadImage = "fail",
    engine: Annotated[str, typer.Option(help="local, or ray for many teachers in parallel.")] = "local",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Assess on a stratified subset of so many samples.")
    ] = None,
    prefilter: Annotated[
        bool, typer.Option("--prefilter", help="Rule teachers out on small samples first.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds a teacher may take.")] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Skip teachers that need more, as 800M or 4GB.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where networks run: auto, cpu, cuda, cuda:1, mps.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Teachers in parallel on Ray.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads for one teacher.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample, the bootstrap and the pre-filter.")] = 0,
    resume: Annotated[bool, typer.Option(help="Take finished rows from the journal.")] = True,
    trust_code: TrustCode = False,
    student: Annotated[
        str | None,
        typer.Option(help="Architecture for sinkhorn-single and sinkhorn-exact, which train students."),
    ] = None,
    recipe: Annotated[str, typer.Option(help="How those students are trained.")] = "small",
    top: Annotated[
        int | None, typer.Option(min=1, help="Show only the first so many; --json has all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for ranking.json.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rank every teacher in ZOO for the task in DATA, best first.

    A teacher that cannot be assessed stands at the end with its reason. Interrupted, the same command goes on
    where it stopped.

    Example: preceptor rank zoo/ photos/ --metric all --sample 2000 --timeout 60 --out rankings/photos
    """
    from preceptor.distill.run_folder import RunFolder
    from preceptor.metrics import DEFAULT_METRICS
    from preceptor.rank import rank as rank_teachers
    from preceptor.rank.students import Student
    from preceptor.report.story import DEMO
    from preceptor.zoo import Zoo

    teachers, task = Zoo(zoo), read_task(data, classes, window, on_bad_image)
    metrics = tuple(metric or DEFAULT_METRICS)
    out, report = (None if path is None else local_path(path) for path in (out, report))
    of_a_run = () if out is None else (RunFolder(out).config_file, out / "pipeline.json", out / DEMO)
    if any(file.exists() for file in of_a_run):
        raise PreceptorError(
            f"{out} holds a run, which would seem to have begun with this ranking; name another folder for --out"
        )
    for file in (None if out is None else out / "ranking.json", report):
        if file is not None:
            check_can_write(file)  # told before the work, not after
    with _watch(metrics, by, len(teachers.names()), quiet=as_json) as on_row:
        ranking = rank_teachers(
            teachers,
            task,
            metrics,
            by=by,
            engine=engine,
            sample=sample,
            seed=seed,
            timeout=timeout,
            device=device,
            resume=resume,
            on_row=on_row,
            memory_limit=memory_limit,
            prefilter=prefilter,
            workers=workers,
            threads=threads,
            trust_code=trust_code,
            student=None if student is None else Student(student, recipe),
            notify=to_stderr,
        )
    _keep(ranking, task, out, report)
    _show(ranking, top, as_json)
    _ = ranking.best  # raises, for exit status 1, where no teacher has a rank


def _show(ranking: Ranking, top: int | None, as_json: bool) -> None:
    if as_json:
        say(ranking.to_json())
        return
    from preceptor.rank.table import summary

    metrics = list(dict.fromkeys(name for row in ranking.rows for name in (*row.scores, *row.reasons)))
    columns = [name for name in metrics if name != "teacher"] or [ranking.metric]
    show_ranking(ranking, columns, top)
    for line in summary(ranking):
        say(line)


def _keep(ranking: Ranking, task: Task, out: Path | None, report: Path | None) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "ranking.json", ranking.to_json().encode())
    if report is not None:
        from preceptor.report import write_report

        write_report(ranking, report, task=task)


@contextmanager
def _watch(
    metrics: tuple[str, ...], by: str | None, total: int, *, quiet: bool
) -> Iterator[Callable[[RankingRow], None]]:
    """A table that fills on a terminal; with ``--json`` a bar on standard error; nothing in a pipe."""
    if quiet or not sys.stdout.isatty():
        with progress("teachers", total) as bar:
            yield lambda row: bar.advance(bar.task_ids[0])
        return
    from rich.live import Live

    from preceptor.cli.tables import ranking_tables
    from preceptor.rank.settings import choose_metrics
    from preceptor.rank.table import sort_rows

    columns = choose_metrics(metrics, by)
    shown: tuple[RankingRow, ...] = ()
    done = count(1)
    with Live(refresh_per_second=4, transient=True) as live:

        def on_row(row: RankingRow) -> None:
            nonlocal shown
            # Only what is on the screen is kept and sorted: the cost of a row does not grow with the zoo.
            shown = sort_rows([*shown, row], by or columns[0])[:LIVE_ROWS]
            table = ranking_tables(shown, columns, by=by or columns[0], width=terminal_width())[0]
            table.title = f"{next(done)} of {counted(total, 'teacher')}"
            live.update(table)

        yield on_row
