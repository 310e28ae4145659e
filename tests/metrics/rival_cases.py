"""Inputs that the tests of the rival metrics share: one friendly task, and the hard ones."""

from __future__ import annotations

import numpy as np


def task(samples=120, dimensions=8, classes=4, sources=6, signal=1.5, seed=0, dtype=np.float64):
    """Gaussian classes; logits and classifier that know something about them."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(samples) % classes)
    centers = generator.standard_normal((classes, dimensions)) * signal
    features = centers[labels] + generator.standard_normal((samples, dimensions)) + 0.5
    classifier = generator.standard_normal((sources, dimensions))
    classifier[: min(classes, sources)] += centers[: min(classes, sources)]
    return {
        "features": features.astype(dtype),
        "labels": labels,
        "logits": (features @ classifier.T).astype(dtype),
        "classifier": classifier.astype(dtype),
    }


def hard_tasks():
    """Name -> inputs on which public implementations give NaN, infinity or a crash."""
    generator = np.random.default_rng(1)
    normal = generator.standard_normal
    labels = np.arange(30) % 3
    cases = {
        "one-sample classes": (normal((12, 5)), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4])),
        "only one-sample classes": (normal((6, 5)), np.arange(6)),
        "one class": (normal((10, 5)), np.zeros(10, dtype=int)),
        "constant features": (np.full((30, 4), 3.25), labels),
        "zero features": (np.zeros((30, 4)), labels),
        "one constant dimension": (np.hstack([normal((30, 3)), np.full((30, 1), 7.0)]), labels),
        "d = 1": (normal((30, 1)), labels),
        "N < d": (normal((30, 100)), labels),
        "N = 2": (normal((2, 5)), np.array([0, 1])),
        "duplicates": (np.repeat(normal((6, 4)), 5, axis=0), labels),
        "one point a class": (np.eye(3)[labels], labels),
        "huge": (normal((30, 4)) * 1e12, labels),
        "tiny": (normal((30, 4)) * 1e-12, labels),
        "far from the origin": (normal((30, 4)) + 1e6, labels),
        "gaps in the labels": (normal((30, 4)), labels * 50 + 3),
        "float32": (normal((30, 4)).astype(np.float32), labels),
    }
    result = {}
    for name, (features, named) in cases.items():
        classifier = normal((7, features.shape[1])).astype(features.dtype)
        logits = normal((len(features), 7)).astype(features.dtype)
        logits[:, 3] = -1e4  # a source class of no mass
        result[name] = {"features": features, "labels": named, "logits": logits, "classifier": classifier}
    return result


HARD = hard_tasks()


def shuffled(inputs, seed=3):
    """The same samples in another order, with other class names."""
    generator = np.random.default_rng(seed)
    rows = generator.permutation(len(inputs["labels"]))
    names = generator.permutation(200)
    result = {key: inputs[key][rows] for key in ("features", "logits")}
    return result | {"labels": names[inputs["labels"][rows]], "classifier": inputs["classifier"]}
