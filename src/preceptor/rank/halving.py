"""A pre-filter for huge zoos: rule teachers out on small samples before anyone sees all the data.

Successive halving with confidence bounds. In each round every remaining teacher is scored on a stratified
sample and on stratified halves of it; the sample grows from round to round. A teacher leaves when it is
outside the better part of the field *and* the upper confidence bound of its distance to the leader lies
below zero, so that a close race is never decided by the halving alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

Array = np.ndarray
# names, sample size -> score of each (T,) on the sample, and on each of its halves (J, T); NaN: not scored
Evaluate = Callable[[Sequence[str], int], tuple[Array, Array]]


@dataclass(frozen=True)
class Round:
    """One round of the pre-filter."""

    size: int  # samples each teacher was shown
    entered: int
    left: int  # how many were ruled out


@dataclass(frozen=True)
class Prefilter:
    """Who survived, who did not and why, and what it cost in forward passes."""

    survivors: tuple[str, ...]
    ruled_out: Mapping[str, str] = field(default_factory=dict)  # name -> reason
    rounds: tuple[Round, ...] = ()

    def saved_fraction(self, full_size: int) -> float:
        """The share of forward passes saved against showing every teacher all `full_size` samples.

        A survivor's last pass over all the data is counted in full, as if the rounds before were lost.
        """
        spent = sum(r.size * r.entered for r in self.rounds) + full_size * len(self.survivors)
        total = full_size * (len(self.survivors) + len(self.ruled_out))
        return 1 - spent / total if total else 0.0


def round_sizes(
    full_size: int, num_classes: int, *, first: int | None = None, growth: int = 3
) -> Iterator[int]:
    """Sample sizes of the rounds: from a few samples a class up to a third of the data at most.

    Args:
        full_size: the number of training samples.
        num_classes: the task's classes; a sample without some of them says little.
        first: the first size; by default eight samples a class, 96 at least.
        growth: each round shows so many times more samples than the last.
    """
    size = first if first is not None else max(8 * num_classes, 96)
    while size * growth <= full_size:
        yield size
        size *= growth


def upper_bounds(scores: Array, halves: Array, *, quantile: float) -> Array:
    """The upper confidence bound of each teacher's distance to the leader on all the data, (T,).

    The spread of a score over random halves of a sample equals its standard error on the whole sample (for
    a mean exactly: half the samples double the variance, drawing without replacement halves it again). All
    teachers see the same halves, so what makes a half hard for all cancels in the distance. A score that
    falls or rises with the sample size, as a probe's does, moves on: where the step from n/2 to n samples
    moved a distance by b, the steps that remain move it by about b again, hence the allowance of |b|.

    Args:
        scores: (T,) on the whole sample; NaN stands for a teacher without a score and is never bounded.
        halves: (J, T) on the halves.
        quantile: how many standard errors the bound lies above the estimate.
    """
    leader = int(np.nanargmax(scores))
    distance = scores - scores[leader]  # (T,)
    on_halves = halves - halves[:, [leader]]  # (J, T)
    count = len(halves)
    variance = on_halves.var(axis=0, ddof=1)
    others = np.delete(variance, leader)
    # Few halves make a rough variance, and a variance that is small by chance would rule out too early.
    pooled = float(np.nanmedian(others)) if np.isfinite(others).any() else 0.0
    variance = np.maximum(variance, (pooled + (count - 1) * variance) / count)
    drift = np.abs(on_halves.mean(axis=0) - distance)
    return distance + quantile * np.sqrt(variance) + drift


def successive_halving(
    names: Sequence[str],
    evaluate: Evaluate,
    sizes: Sequence[int],
    *,
    keep: int = 3,
    eta: float = 4.0,
    risk: float = 0.05,
) -> Prefilter:
    """Rule teachers out in rounds of growing sample size.

    Args:
        names: the teachers.
        evaluate: scores teachers on a sample of the given size; a teacher it cannot score (NaN) stays in,
            so that the full ranking says what is wrong with it.
        sizes: the sample size of each round, growing.
        keep: so many teachers stay at least.
        eta: the best 1/eta of a round's teachers always stay.
        risk: the chance to lose the winner that all bounds together may take; it is split over rounds and
            teachers.
    """
    alive = list(names)
    ruled_out: dict[str, str] = {}
    rounds: list[Round] = []
    quantile = float(stats.norm.isf(risk / max(1, len(sizes) * len(alive))))
    for number, size in enumerate(sizes, start=1):
        if len(alive) <= keep:
            break
        scores, halves = evaluate(alive, size)
        if not np.isfinite(scores).any():
            rounds.append(Round(size, len(alive), 0))
            continue
        bounds = upper_bounds(scores, halves, quantile=quantile)
        safe = set(np.argsort(-scores, kind="stable")[: max(keep, int(np.ceil(len(alive) / eta)))])
        out = [i for i in range(len(alive)) if i not in safe and bounds[i] < 0]
        best = float(np.nanmax(scores))
        for i in out:
            ruled_out[alive[i]] = (
                f"ruled out by the pre-filter in round {number}: {scores[i]:.4g} on {size} samples, "
                f"where the leader has {best:.4g}"
            )
        rounds.append(Round(size, len(alive), len(out)))
        gone = set(out)
        alive = [name for i, name in enumerate(alive) if i not in gone]
    return Prefilter(tuple(alive), ruled_out, tuple(rounds))
