"""Cross-validated accuracy of the linear probe."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from preceptor.core import PreceptorError
from preceptor.metrics.inputs import Array, as_matrix, compact_labels
from preceptor.metrics.linear_probe import STRENGTH, Design, fit_probe, prepare
from preceptor.metrics.sampling import content_hash


def probe(
    *,
    features: Any,
    labels: Any,
    folds: int = 5,
    strength: float = STRENGTH,
    tolerance: float = 0.02,
    **_unused: Any,
) -> float:
    """The share of samples that a probe fitted without them puts in their class; between 0 and 1.

    The model is that of `preceptor.metrics.linear_probe`. Each class is dealt out evenly over the folds, in
    an order that depends on the content of its samples only. A class with one sample has nothing left to be
    learned from when that sample is held out: it counts as wrong. Copies of a sample can fall into different
    folds, where they make the task look easier than it is.

    Centre, scale and products of the features, which know no labels, are computed once for all folds.

    Args:
        features: (N, d)
        labels: (N,)
        folds: at least 2.
        strength: scikit-learn's C.
        tolerance: duality gap of each fit as a share of its loss. In trials on four tasks 0.02 left the
            accuracy within one point of a converged fit's; 0.001 left it within a tenth of a point.
    """
    if folds < 2:
        raise PreceptorError(f"folds is {folds}; expected 2 or more")
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    counts = np.bincount(indices, minlength=classes)
    if counts.max() == 1:
        return 0.0
    fold_of = _deal(features, indices, classes, folds)
    design = prepare(features)
    right = 0
    for fold in range(folds):
        held = (fold_of == fold) & (counts[indices] > 1)
        if held.any():
            logits = _held_out_logits(design, indices, classes, held, strength, tolerance)
            right += int((logits.argmax(axis=1) == indices[held]).sum())
    return right / len(features)


def _deal(features: Array, indices: Array, classes: int, folds: int) -> Array:
    """The fold of each sample, (N,): the samples of a class, sorted by a hash, go round the folds.

    Each class begins at the fold where the one before it ended, so that many small classes fill the folds
    evenly; the classes are sorted by their smallest hash, so that their numbers do not matter.
    """
    hashes = content_hash(features)
    smallest = np.full(classes, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, indices, hashes)
    order = np.lexsort((hashes, indices, smallest[indices]))
    fold_of = np.empty(len(indices), dtype=np.int64)
    fold_of[order] = np.arange(len(indices)) % folds
    return fold_of


def _held_out_logits(
    design: Design, indices: Array, classes: int, held: Array, strength: float, tolerance: float
) -> Array:
    rows = torch.from_numpy(np.flatnonzero(~held))
    test = torch.from_numpy(np.flatnonzero(held))
    kept = design.values[rows]
    gram = design.gram
    if design.dual:
        gram = gram[rows][:, rows]  # the rows rise, so the lower triangle stays below
    part = Design(kept, gram, np.zeros(kept.shape[1]), 1.0, design.dual)
    fitted = fit_probe(part, indices[~held], classes, strength=strength, tolerance=tolerance)
    return (design.values[test] @ fitted.weight.T.float() + fitted.bias.float()).numpy()
