"""Rows of a ranking: their order, the agreement between metrics, and what there is to say about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from preceptor.core import Ranking, RankingRow
from preceptor.metrics.quality import spearman
from preceptor.wording import counted, with_comma_quoted


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
    found: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
    for first, second in combinations(metrics, 2):
        pairs = [[row.scores.get(metric, math.nan) for metric in (first, second)] for row in rows]
        both = [pair for pair in pairs if all(map(math.isfinite, pair))]
        value = spearman(*zip(*both, strict=True)) if len(both) >= 3 else math.nan
        if math.isfinite(value):
            found[first][second] = found[second][first] = value
    return {metric: pairs for metric, pairs in found.items() if pairs}


def remark(row: RankingRow) -> str:
    """One line on a row: why it has no score, or which of its classes feed which of the task's."""
    if row.reasons:
        return "; ".join(
            reason if name == "teacher" else f"{name}: {reason}" for name, reason in row.reasons.items()
        )
    pairs = row.details.get("class_pairs", ())
    return ", ".join(
        f"{with_comma_quoted(pair['teacher'])} → {with_comma_quoted(pair['task'])}"
        for pair in list(pairs)[:3]
    )


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
        verb = "has" if missing == 1 else "have"
        every = counted(len(ranking.rows), "teacher")
        lines.append(f"{missing} of {every} {verb} no rank; the remarks say why")
    return lines
