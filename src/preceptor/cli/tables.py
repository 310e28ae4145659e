"""Tables for a terminal: in as many as its width asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from preceptor.core import RankingRow

if TYPE_CHECKING:
    from rich.table import Table

# Columns of words, whose cells may have several lines, and letters in such a line; all others are numbers.
FOLDING, FOLDED = ("teacher", "name", "source", "remark"), 20


def ranking_tables(
    rows: Sequence[RankingRow],
    metrics: Sequence[str],
    *,
    by: str,
    top: int | None = None,
    width: int | None = None,
) -> list[Table]:
    """The rows as a table for people: rank, teacher, scores, probe accuracy, seconds, remarks.

    Where not all metrics fit, further tables have the rest of them.

    Args:
        rows: sorted, as `sort_rows` gives them.
        metrics: the columns.
        by: the metric that decides; its column stands first.
        top: show so many of the ranked; teachers without a rank are always shown.
        width: letters in a line; None for as many as it takes.
    """
    from preceptor.rank.table import remark

    shown = [row for row in rows if top is None or row.rank is None or row.rank <= top]
    columns = {
        name: [_score(row.scores.get(name)) for row in shown] for name in dict.fromkeys([by, *metrics])
    }
    names = {
        "#": ["-" if row.rank is None else str(row.rank) for row in shown],
        "teacher": [row.name for row in shown],
    }
    about = {
        "probe fit": [_percent(row.details.get("probe_accuracy")) for row in shown],
        "forward s": [f"{row.forward_seconds:.2f}" for row in shown],
        "metric s": [f"{sum(row.metric_seconds.values()):.2f}" for row in shown],
        "remark": [remark(row) for row in shown],
    }
    return tables_within(names, columns, width, about)


def tables_within(
    names: Mapping[str, Sequence[str]],
    columns: Mapping[str, Sequence[str]],
    width: int | None,
    about: Mapping[str, Sequence[str]] | None = None,
    *,
    framed: bool = True,
) -> list[Table]:
    """The columns in as many tables as the width asks for, each with the names in front.

    Args:
        names: the columns that every table begins with; title -> cells.
        columns: the other columns, in their order.
        width: letters in a line; None for as many as it takes.
        about: columns at the end of the first table, or after all others where they do not fit there.
        framed: draw lines around the cells.
    """
    left, beside = dict(columns), dict(about or {})
    first = next(iter(left.items()))
    if width is not None and sum(_width(*c) for c in [*names.items(), first, *beside.items()]) >= width:
        left, beside = {**left, **beside}, {}
    tables = []
    while left:
        fixed = sum(_width(*column) for column in {**names, **beside}.items())
        fitting = [name for name, used in _running_widths(left) if width is None or fixed + used < width]
        chosen = {name: left.pop(name) for name in fitting or [next(iter(left))]}
        tables.append(_table({**names, **chosen, **beside}, framed))
        beside = {}
    return tables


def _running_widths(columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Each column with what it and those before it take."""
    return zip(columns, accumulate(_width(*column) for column in columns.items()), strict=True)


def _width(name: str, cells: Sequence[str]) -> int:
    """Letters that a column takes, with its frame; those that may be folded take no more than `FOLDED`."""
    longest = max(map(len, [name, *cells]))
    return 3 + (min(longest, FOLDED) if name in FOLDING else longest)


def _table(columns: Mapping[str, Sequence[str]], framed: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table() if framed else Table(box=None)
    for name in columns:
        if name in FOLDING:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, cells))  # as they are: a class may be called [/b], which is no markup
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _score(value: float | None) -> str:
    return (
        "" if value is None else f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4f}"
    )
