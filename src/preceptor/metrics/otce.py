"""OTCE: the teacher's classes transported to the task's samples: how far, and how mixed the labels get."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import (
    Array,
    as_centers,
    as_matrix,
    as_tensor,
    check_count,
    check_positive,
    compact_labels,
)
from preceptor.metrics.nce import negative_conditional_entropy
from preceptor.metrics.sampling import stratified_rows
from preceptor.metrics.scatter import membership, row_hashes
from preceptor.ot import sinkhorn, unit_rows


@entry()
def otce(
    *,
    features: Any,
    labels: Any,
    classifier: Any = None,
    centers: Any = None,
    epsilon: float = 0.1,
    distance_weight: float = 1.0,
    max_samples: int = 2000,
    tolerance: float = 1e-2,
    **_unused: Any,
) -> float:
    """Optimal transport based conditional entropy.

    Tan, Li and Huang, OTCE: a transferability metric for cross-domain cross-task representations, CVPR 2021.
    There the source side of the transport problem are source samples. They are seldom at hand, so here each
    source class is one point of equal mass: its stored centre (`centers`) or else its row of the classifier.
    Both sides lie on the unit sphere (a zero vector stays at the origin). With the entropic plan T of the
    squared distances, z a source class and y the label of a target sample::

        P(z, y) = sum_{j: y_j = y} T_zj      W = <T, cost>
        OTCE    = - H(Y | Z) - distance_weight W

    The paper fits the two weights on auxiliary transfers; 1 and 1 are taken here. `distance_weight=0` is
    F-OTCE (Tan et al., Transferability-guided cross-domain cross-task transfer learning, 2024). Above
    `max_samples` the target side is a subset, each class with its share, chosen by a hash of the features.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
        classifier: (C_T, d) rows of the teacher's last layer; may be left out where `centers` are given.
        centers: (C_T, d) stored class centres of the source data, which are taken first.
        epsilon: strength of the entropic term; squared distances on the sphere go from 0 to 4.
        distance_weight: of the transport cost.
        max_samples: target samples at most, about.
        tolerance: share of the mass that the plan may leave in the wrong place; the last percent takes most
            of the iterations and moves the score by less than that.
    """
    check_positive(epsilon=epsilon, tolerance=tolerance)
    check_count(1, max_samples=max_samples)
    features = as_matrix(features, "features")
    every, classes = compact_labels(labels, len(features))
    source = as_centers(classifier, centers, columns=features.shape[1])
    kind = np.result_type(source, features)  # rounding moves squared distances on the sphere by 1e-6 at most
    hashes = row_hashes(features)
    rows = stratified_rows(hashes, every, classes, max_samples)
    rows = rows[np.argsort(hashes[rows], kind="stable")]  # a solver may depend on the order of the columns
    source, target = source.astype(kind, copy=False), features[rows].astype(kind, copy=False)
    indices = every[rows]
    shares = np.bincount(every) / len(every)
    mass = (shares / np.bincount(indices))[indices]  # each class keeps its share of the whole
    plan, distance = _transport(as_tensor(source), as_tensor(target), mass, epsilon, tolerance)
    joint = membership(indices, classes) @ plan.T  # (C, C_T)
    return negative_conditional_entropy(joint) - distance_weight * distance


def _transport(
    source: Tensor, target: Tensor, mass: Array, epsilon: float, tolerance: float
) -> tuple[Array, float]:
    """The entropic plan (C_T, n) from equal masses to `mass`, and its transport cost."""
    source, target = unit_rows(source, zero_rows="origin"), unit_rows(target, zero_rows="origin")
    squares = (source**2).sum(dim=1)[:, None] + (target**2).sum(dim=1) - 2 * source @ target.T
    cost = squares.clamp_min(0)
    origin = torch.full((1, len(source)), 1 / len(source), dtype=cost.dtype)
    solved = sinkhorn(origin, torch.from_numpy(mass)[None].to(cost.dtype), cost, epsilon, tolerance)
    plan = solved.mean_plan()  # of the one problem
    return plan.numpy(), float((plan * cost).sum(dtype=torch.float64))
