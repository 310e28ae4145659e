"""Rows of a ranking: their order, the agreement between metrics, and how they look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from preceptor.core import Ranking, RankingRow

if TYPE_CHECKING:
    from rich.table import Table


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


def rich_table(
    rows: Sequence[RankingRow], metrics: Sequence[str], *, by: str, top: int | None = None
) -> Table:
    """The rows as a table for people: rank, teacher, scores, probe accuracy, seconds, remarks.

    Args:
        rows: sorted, as `sort_rows` gives them.
        metrics: the columns.
        by: the metric that decides; its column stands first.
        top: show so many of the ranked; teachers without a rank are always shown.
    """
    from rich.table import Table

    table = Table()
    table.add_column("#", justify="right")
    table.add_column("teacher", overflow="fold")
    columns = [by, *(metric for metric in metrics if metric != by)]
    for metric in columns:
        table.add_column(metric, justify="right", no_wrap=True)
    table.add_column("probe fit", justify="right", no_wrap=True)
    table.add_column("forward s", justify="right", no_wrap=True)
    table.add_column("metric s", justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row in rows:
        if top is not None and row.rank is not None and row.rank > top:
            continue
        accuracy = row.details.get("probe_accuracy")
        table.add_row(
            "-" if row.rank is None else str(row.rank),
            row.name,
            *(_score(row.scores.get(metric)) for metric in columns),
            "" if accuracy is None else f"{100 * accuracy:.1f} %",
            f"{row.forward_seconds:.2f}",
            f"{sum(row.metric_seconds.values()):.2f}",
            remark(row),
        )
    return table


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
