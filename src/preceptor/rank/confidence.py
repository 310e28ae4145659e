"""How sure is the order of the leaders: the chance that the first is really first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Array = np.ndarray
RESAMPLES = 2000
CHUNK = 4_000_000  # entries of the resampling matrix held at a time


def bootstrap_first(
    values: Mapping[str, Array], labels: Array, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, float]:
    """The share of bootstrap resamples in which each teacher has the best mean, paired over instances.

    Teachers that are equal, instance by instance, share their wins: neither is first.

    Instances are drawn with replacement within each class, since the sample was stratified. A score that is
    a mean over instances is resampled as it stands: the probe behind it is not fitted again, so its own
    chance is not in the figure.

    Args:
        values: teacher -> (N,) its score of each instance, higher is better; all on the same instances.
        labels: (N,) the class of each instance.
        resamples: how often to draw.
        seed: makes the draw repeatable.
    """
    names = list(values)
    rows = [np.asarray(values[name], dtype=np.float64) for name in names]
    # Twins become one column: products over equal columns need not round alike.
    kinds, kind_of = np.unique(np.stack(rows), axis=0, return_inverse=True)
    table, kind_of = kinds.T, kind_of.reshape(-1)  # (N, kinds), (T,)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    generator = np.random.default_rng(seed)
    wins = np.zeros(len(kinds))
    step = max(1, CHUNK // max(1, len(labels)))
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        counts = np.zeros((draws, len(labels)))
        for group in groups:
            counts[:, group] = generator.multinomial(
                len(group), np.full(len(group), 1 / len(group)), size=draws
            )
        wins += _shared_wins(counts @ table)
    shares = (wins / np.bincount(kind_of) / resamples)[kind_of]
    return dict(zip(names, shares.tolist(), strict=True))


def _shared_wins(scores: Array) -> Array:
    """How many rows of (J, T) each column wins; columns that share the best score share the row."""
    best = scores == scores.max(axis=1, keepdims=True)
    wins: Array = (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return wins


def halves_first(scores: Mapping[str, Array]) -> dict[str, float]:
    """The share of half samples on which each teacher has the best score; equal scores share a half.

    For scores that are no mean over instances. Halves drawn without replacement spread a score as much as
    bootstrap resamples do, and hold no instance twice: a duplicate would tell a nearest neighbour or a
    cross-validated probe its answer.

    Args:
        scores: teacher -> (J,) its score on each half; all on the same halves.
    """
    names = list(scores)
    table = np.stack([np.asarray(scores[name], dtype=np.float64) for name in names], axis=1)  # (J, T)
    table = np.where(np.isfinite(table), table, -np.inf)
    return dict(zip(names, (_shared_wins(table) / len(table)).tolist(), strict=True))


def half_samples(labels: Array, count: int, seed: int) -> list[Array]:
    """`count` random halves of the instances, stratified by class; every class keeps at least one.

    Args:
        labels: (N,) the class of each instance.
        count: how many halves.
        seed: makes them repeatable: teachers are compared on the same halves.
    """
    generator = np.random.default_rng([seed, len(labels)])
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    halves = []
    for _ in range(count):
        # An odd class gives its middle instance to half of the draws, so that halves are halves on average.
        parts = [
            generator.permutation(group)[: max(1, int(len(group) / 2 + generator.integers(2) / 2))]
            for group in groups
        ]
        halves.append(np.sort(np.concatenate(parts)))
    return halves
