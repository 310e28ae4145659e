"""Rows of a ranking: their order, the agreement between metrics, and how they look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from preceptor.core import Ranking, RankingRow

if TYPE_CHECKING:
    from rich.table import Table

# Columns of words, whose cells may have several lines, and letters in such a line; all others are numbers.
FOLDING, FOLDED = ("teacher", "name", "source", "remark"), 20


def sort_rows(rows: Iterable[RankingRow], by: str) -> tuple[RankingRow, ...]:
    """Rows with a score for `by`, best first and numbered from 1; then those without, by name.

    Equal scores stand in the order of their names, so that the order never depends on who finished first.
    """
    rows = list(rows)
    scored = [row for row in rows if math.isfinite(row.scores.get(by, math.nan))]
    scored.sort(key=lambda row: (-row.scores[by], row.name))
    others = sorted(
        (row for row in rows if not math.isfinite(row.scores.get(by, math.nan))), key=lambda r: r.name
    )
    ranked = [replace(row, rank=place) for place, row in enumerate(scored, start=1)]
    return (*ranked, *(replace(row, rank=None) for row in others))


def agreement(rows: Sequence[RankingRow], metrics: Sequence[str]) -> dict[str, dict[str, float]]:
    """Spearman's correlation between each two metrics over the teachers that have both.

    Pairs with fewer than three teachers, or with a metric that gives all of them the same score, are left
    out: there is no order to agree on.
    """
    from scipy.stats import rankdata

    table = np.array([[row.scores.get(metric, math.nan) for metric in metrics] for row in rows])
    found: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
    for i, first in enumerate(metrics):
        for j, second in enumerate(metrics[:i]):
            both = (
                table[np.isfinite(table[:, [i, j]]).all(axis=1)]
                if len(table)
                else table.reshape(0, len(metrics))
            )
            if len(both) < 3:
                continue
            one, two = rankdata(both[:, i]), rankdata(both[:, j])
            if np.ptp(one) == 0 or np.ptp(two) == 0:
                continue
            found[first][second] = found[second][first] = float(np.corrcoef(one, two)[0, 1])
    return {metric: pairs for metric, pairs in found.items() if pairs}


def rich_tables(
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


def remark(row: RankingRow) -> str:
    """One line on a row: why it has no score, or which of its classes feed which of the task's."""
    if row.reasons:
        return "; ".join(
            reason if name == "teacher" else f"{name}: {reason}" for name, reason in row.reasons.items()
        )
    pairs = row.details.get("class_pairs", ())
    return ", ".join(f"{pair['teacher']} → {pair['task']}" for pair in list(pairs)[:3])


def summary(ranking: Ranking) -> list[str]:
    """What a reader should know beside the table, a line each."""
    lines = []
    leaders = [row for row in ranking.rows if row.rank == 1]
    if leaders and ranking.confidence:
        chance = ranking.confidence.get(leaders[0].name, 0.0)
        how = ranking.evidence.get("confidence", "")
        lines.append(f"{leaders[0].name} is really first with a chance of {100 * chance:.0f} % ({how})")
    others = ranking.agreement.get(ranking.metric, {})
    if others:
        pairs = ", ".join(
            f"{name} {value:+.2f}" for name, value in sorted(others.items(), key=lambda p: -p[1])
        )
        lines.append(f"agreement with {ranking.metric} (Spearman): {pairs}")
    missing = sum(row.rank is None for row in ranking.rows)
    if missing:
        lines.append(f"{missing} of {len(ranking.rows)} teachers have no rank; the remarks say why")
    return lines


def _score(value: float | None) -> str:
    return (
        "" if value is None else f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4f}"
    )
