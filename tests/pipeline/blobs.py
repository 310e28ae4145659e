"""Small tasks of vectors, and a short training for them."""

from __future__ import annotations

import numpy as np

from preceptor import Task

RECIPE = {"recipe": "quick", "epochs": 3, "device": "cpu", "batch_size": 32}


def blobs(classes: str, seed: int = 0, per_class: int = 24, noise: float = 0.6) -> Task:
    """Vectors around one point for each letter; the same letter has the same point in every task."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(len(classes)), count)
        points = np.stack([np.random.default_rng(ord(c)).normal(size=12) for c in classes])
        vectors = points[labels] + noise * random.normal(size=(len(labels), 12))
        return vectors.astype(np.float32), labels

    return Task.from_arrays(*draw(per_class), *draw(per_class), list(classes), name=f"blobs {classes}")
