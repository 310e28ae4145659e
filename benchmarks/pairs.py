"""Comparing two pieces of work on a machine that others use too: in pairs, by the processor's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def timed(work: Callable[[], None], repeats: int = 1) -> np.ndarray:
    """Seconds of processor time and of wall time for one call: (2,)."""
    begun = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        work()
    return np.array([time.process_time() - begun[0], time.perf_counter() - begun[1]]) / repeats


def paired(plain: Callable[[], None], other: Callable[[], None], rounds: int, repeats: int = 1) -> np.ndarray:
    """Times of `other` over those of the plain steps before and after it, by both clocks: (rounds, 2)."""
    plain(), other()  # warm up
    before, ratios = timed(plain), []
    for _ in range(rounds):
        taken, after = timed(other, repeats), timed(plain)
        ratios.append(2 * taken / (before + after))
        before = after
    return np.array(ratios)


def median_interval(values: np.ndarray, draws: int = 4000) -> tuple[float, float, float]:
    """The median and the bounds of its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    medians = np.median(values[random.integers(0, len(values), (draws, len(values)))], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(values)), float(low), float(high)
