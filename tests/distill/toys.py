"""Tiny tasks on which a network learns within a second."""

from __future__ import annotations

import numpy as np

from preceptor.data.task import Task


def toy_task(train: int = 96, classes: str = "abcd", seed: int = 0, size: int = 8) -> Task:
    """Noisy prototypes, one for each class."""
    random = np.random.default_rng(seed)
    prototypes = random.integers(0, 255, (len(classes), 1, size, size))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % len(classes)
        noise = random.integers(0, 128, (count, 1, size, size))
        return (prototypes[labels] * 0.5 + noise).astype(np.uint8), labels

    return Task.from_arrays(*draw(train), *draw(40), list(classes), name="toy")


def vector_task(train: int = 96, classes: str = "abcd", seed: int = 0) -> Task:
    """Gaussian clouds in six dimensions."""
    random = np.random.default_rng(seed)
    middles = random.normal(size=(len(classes), 6)) * 2

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % len(classes)
        return (middles[labels] + random.normal(size=(count, 6))).astype(np.float32), labels

    return Task.from_arrays(*draw(train), *draw(40), list(classes), name="clouds")
