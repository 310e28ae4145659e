"""LogME: the evidence that a linear model on the features explains the labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import Array, as_matrix, compact_labels
from preceptor.metrics.spectrum import Spectrum, spectrum

LARGEST_PRECISION = 1e6  # of the noise on the one-hot labels: a standard deviation of a thousandth
_GRID = 97


@entry()
def logme(*, features: Any, labels: Any, **_unused: Any) -> float:
    """You et al., LogME: practical assessment of pre-trained models for transfer learning, ICML 2021.

    For each class, y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) on the one-hot label y::

        log p(y | F, alpha, beta) = N/2 log beta - beta/2 y^T (I + F F^T / t)^-1 y
                                    - 1/2 sum_k log(1 + sigma_k / t) - N/2 log 2 pi,        t = alpha / beta

    maximised over alpha and beta, divided by N, and averaged over the classes. This form holds for N < d as
    well, where the public code leaves out (d - N)/2 log alpha. The best beta for a given t is known, so that
    one dimension is left: a grid over log t finds the hill, for all classes at once, and golden sections its
    top. (The published fixed point stops after at most 11 steps; it has the same maximum.) Labels that fit
    exactly would have infinite evidence: beta is kept below 1e6.
    """
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    return float(log_evidence(spectrum(features, indices, classes), len(features)).mean())


def log_evidence(seen: Spectrum, samples: int) -> Array:
    """The greatest log evidence of each class, divided by the number of samples; (C,)."""
    top = float(seen.values[-1]) or 1.0  # features of zeros: any t will do
    grid = np.linspace(-14, 14, _GRID) * np.log(10) + np.log(top)  # log t
    shrink = 1 / (1 + seen.values[:, None] * np.exp(-grid))  # (k, T), t / (sigma + t)
    values = _profile(seen, seen.energies @ (1 - shrink), -np.log(shrink).sum(axis=0), samples)
    best = values.argmax(axis=1)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _GRID - 1)]
    return np.maximum(values.max(axis=1), _golden(seen, low, high, samples))


def _profile(seen: Spectrum, explained: Array, log_determinant: Array, samples: int) -> Array:
    """The evidence at the best beta, from y^T y - y^T (I + F F^T/t)^-1 y (C, T) and log |I + F F^T/t|."""
    left = np.maximum(seen.counts[:, None] - explained, 0)
    beta = samples / np.maximum(left, samples / LARGEST_PRECISION)
    fit = samples * (np.log(beta) - np.log(2 * np.pi)) - beta * left
    return (fit - log_determinant) / (2 * samples)


def _golden(seen: Spectrum, low: Array, high: Array, samples: int) -> Array:
    """The greatest evidence between `low` and `high` (C,) of log t, by golden sections."""
    ratio = (np.sqrt(5) - 1) / 2

    def evidence(log_t: Array) -> Array:
        ratios = seen.values * np.exp(-log_t)[:, None]  # (C, k), sigma / t
        explained = (seen.energies * (ratios / (1 + ratios))).sum(axis=1, keepdims=True)
        return _profile(seen, explained, np.log1p(ratios).sum(axis=1, keepdims=True), samples)[:, 0]

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = evidence(left), evidence(right)
    for _ in range(16):  # the hill is flat at its top: a bracket of 1e-3 gives the value to about 1e-7
        go_left = at_left > at_right
        low, high = np.where(go_left, low, left), np.where(go_left, right, high)
        fresh = np.where(go_left, high - ratio * (high - low), low + ratio * (high - low))
        at_fresh = evidence(fresh)
        left, right = np.where(go_left, fresh, right), np.where(go_left, left, fresh)
        at_left, at_right = np.where(go_left, at_fresh, at_right), np.where(go_left, at_left, at_fresh)
    return np.maximum(at_left, at_right)
