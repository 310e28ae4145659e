"""Choosing some of many labelled samples, class by class. Pure and seeded."""

from __future__ import annotations

import numpy as np

from preceptor.core import PreceptorError


def check_seed(seed: int) -> None:
    """Refuse what a generator cannot be seeded with."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise PreceptorError(f"seed {seed!r} came; expected a whole number of 0 or more")


def shuffled_classes(labels: np.ndarray, seed: int, keys: tuple[str, ...]) -> list[np.ndarray]:
    """For each class its sample positions in a random order.

    The order depends on the seed and on the class's own name and samples only, so choosing classes
    before or after makes no difference, and a smaller choice is part of a larger one.
    """
    check_seed(seed)
    orders = []
    for label, key in enumerate(keys):
        members = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, *key.encode()])
        orders.append(generator.permutation(members))
    return orders


def take_per_class(labels: np.ndarray, count: int, seed: int, keys: tuple[str, ...]) -> np.ndarray:
    """Positions of `count` samples of each class (all of a class that has fewer), ascending."""
    if count < 1:
        raise PreceptorError(f"cannot take {count} samples of each class; use 1 or more")
    return np.sort(np.concatenate([order[:count] for order in shuffled_classes(labels, seed, keys)]))


def take_stratified(labels: np.ndarray, count: int, seed: int, keys: tuple[str, ...]) -> np.ndarray:
    """Positions of `count` samples with the classes in proportion, at least one of each, ascending."""
    if count >= len(labels):
        return np.arange(len(labels))
    if count < len(keys):
        raise PreceptorError(f"cannot sample {count} of {len(keys)} classes; use {len(keys)} or more")
    orders = shuffled_classes(labels, seed, keys)
    sizes = np.array([len(order) for order in orders])
    exact = sizes * (count / sizes.sum())
    quota = np.maximum(np.floor(exact).astype(int), 1)
    # Largest remainders first; where the minimum of one overshot, the best-served classes give back.
    while quota.sum() < count:
        quota[np.argmax(np.where(quota < sizes, exact - quota, -np.inf))] += 1
    while quota.sum() > count:
        quota[np.argmax(np.where(quota > 1, quota - exact, -np.inf))] -= 1
    return np.sort(np.concatenate([order[:take] for order, take in zip(orders, quota, strict=True)]))


def hold_out(
    labels: np.ndarray, fraction: float, seed: int, keys: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (kept, held out): of each class the fraction, rounded, at least one and never all."""
    if not 0 < fraction < 1:
        raise PreceptorError(
            f"cannot hold out the fraction {fraction}; use one between 0 and 1, such as 0.25"
        )
    held = []
    for order, key in zip(shuffled_classes(labels, seed, keys), keys, strict=True):
        if len(order) < 2:
            raise PreceptorError(
                f"class {key!r} has {len(order)} sample, too few to hold any out; give it 2 or more"
            )
        held.append(order[: min(max(1, round(len(order) * fraction)), len(order) - 1)])
    mask = np.zeros(len(labels), dtype=bool)
    mask[np.concatenate(held)] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)
