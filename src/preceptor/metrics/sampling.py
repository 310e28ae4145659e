"""Choosing and ordering samples by what they hold, so that the order they came in cannot matter."""

from __future__ import annotations

import numpy as np

from preceptor.metrics.inputs import Array

_BLOCK = 256  # rows hashed at a time; small enough to stay in the cache


def content_hash(features: Array) -> Array:
    """A 64-bit hash (N,) of the content of each row in float32; equal rows have equal hashes."""
    generator = np.random.default_rng(2021)
    factors = generator.integers(0, 2**63, size=features.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    hashes = np.empty(len(features), dtype=np.uint64)
    for start in range(0, len(features), _BLOCK):
        block = features[start : start + _BLOCK].astype(np.float32) + np.float32(0)  # -0 and 0 are one value
        words = block.view(np.uint32).astype(np.uint64)
        words *= factors
        hashes[start : start + _BLOCK] = words.sum(axis=1, dtype=np.uint64)
    hashes ^= hashes >> np.uint64(31)  # the low bits of a sum of products are weak: mix the high ones in
    hashes *= np.uint64(0x9E3779B97F4A7C15)
    hashes ^= hashes >> np.uint64(29)
    return hashes


def stratified_rows(hashes: Array, indices: Array, classes: int, limit: int) -> Array:
    """About `limit` rows, each class with its share and at least one, chosen by the hashes of their content.

    The choice looks like a random one but does not depend on the order of the samples nor on the numbering of
    the classes. All rows when there are no more than `limit`.

    Returns:
        Row numbers, class by class, by content within a class.
    """
    samples = len(hashes)
    order = np.lexsort((hashes, indices))
    if samples <= limit:
        return order
    counts = np.bincount(indices, minlength=classes)
    quota = np.maximum(1, np.rint(counts * (limit / samples)).astype(np.int64))
    starts = np.cumsum(counts) - counts
    position = np.arange(samples) - np.repeat(starts, counts)  # within the class
    return order[position < np.repeat(quota, counts)]
