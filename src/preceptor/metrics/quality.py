"""How good a ranking is: scores of a metric against the accuracies that students reached in the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from preceptor.core import PreceptorError
from preceptor.metrics.inputs import Array


def pearson(scores: Any, accuracies: Any) -> float:
    """The linear correlation; NaN where one side is constant, for which it is not defined."""
    x, y = _both(scores, accuracies)
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt(x @ x) * np.sqrt(y @ y)
    return float(np.clip(x @ y / norm, -1, 1)) if norm > 0 else float("nan")


def spearman(scores: Any, accuracies: Any) -> float:
    """The linear correlation of the ranks; equal values share their mean rank."""
    x, y = _both(scores, accuracies)
    return pearson(mean_ranks(x), mean_ranks(y))


def kendall(scores: Any, accuracies: Any) -> float:
    """Kendall's tau-b: pairs in the right order less pairs in the wrong one, with ties accounted for."""
    x, y = _both(scores, accuracies)
    return _tau(x, y, np.ones((len(x), len(x))))


def weighted_kendall(scores: Any, accuracies: Any) -> float:
    """Kendall's tau where a pair counts the more, the higher its two stand: Vigna (2015), hyperbolic weights.

    The pair (i, j) has the weight 1/(r_i + 1) + 1/(r_j + 1) with r the place from 0; the mean of the
    coefficients for places by scores and places by accuracies, as in the literature on these metrics
    (`scipy.stats.weightedtau`, whose ties it breaks alike).
    """
    x, y = _both(scores, accuracies)
    return float(np.mean([_tau(x, y, _pair_weights(_places(*pair))) for pair in ((x, y), (y, x))]))


def top1_regret(scores: Any, accuracies: Any) -> float:
    """Accuracy lost by taking the teacher with the highest score, as a share of the best: 0 is perfect.

    Equal highest scores count with the mean of their accuracies.
    """
    return 1 - relative_accuracy(scores, accuracies, k=1)


def relative_accuracy(scores: Any, accuracies: Any, k: int = 1) -> float:
    """The best accuracy among the k teachers of highest score, divided by the best of all: Rel@k, at most 1.

    Teachers that tie for the last places are taken at random: the expected value over all choices.
    """
    x, y = _both(scores, accuracies)
    if not 1 <= k <= len(x):
        raise PreceptorError(f"k is {k}; expected 1 to {len(x)}, the number of teachers")
    if (y < 0).any() or y.max() == 0:
        raise PreceptorError("accuracies must not be negative, and one of them has to be above 0")
    last = np.sort(x)[::-1][k - 1]
    sure, tied = y[x > last], np.sort(y[x == last])
    floor = sure.max() if len(sure) else 0.0
    return float(_expected_maximum(tied, k - len(sure), floor) / y.max())


def mean_ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse.reshape(-1)]


def _both(scores: Any, accuracies: Any) -> tuple[Array, Array]:
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(accuracies, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise PreceptorError(
            f"scores of shape {x.shape} and accuracies of shape {y.shape} came; "
            f"expected one of each for two or more teachers"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise PreceptorError("scores or accuracies are NaN or infinite; leave those teachers out")
    return x, y


def _tau(x: Array, y: Array, weights: Array) -> float:
    order_x, order_y = np.sign(x[:, None] - x), np.sign(y[:, None] - y)  # (n, n)
    norm = np.sqrt((weights * order_x**2).sum()) * np.sqrt((weights * order_y**2).sum())
    return float(np.clip((weights * order_x * order_y).sum() / norm, -1, 1)) if norm > 0 else float("nan")


def _pair_weights(places: Array) -> Array:
    weights = 1 / (1 + places)
    return weights[:, None] + weights


def _places(first: Array, second: Array) -> Array:
    """The place of each from 0, highest first by `first`, equal ones by `second`."""
    places = np.empty(len(first))
    places[np.lexsort((second, first))[::-1]] = np.arange(len(first))
    return places


def _expected_maximum(values: Array, draws: int, floor: float) -> float:
    """The mean over all subsets of `draws` of the rising `values` of the greatest value or `floor`."""
    count, total, chance_left = len(values), 0.0, 1.0
    for place in range(count - 1, -1, -1):  # the greatest is drawn with chance draws/count, and so on down
        chance = draws / (place + 1)
        total += chance_left * min(chance, 1.0) * max(values[place], floor)
        chance_left *= 1 - min(chance, 1.0)
    return total
