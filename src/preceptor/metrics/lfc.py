"""LFC: the correlation between the similarity of features and the sameness of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from preceptor.metrics.entry import entry
from preceptor.metrics.inputs import as_matrix, compact_labels
from preceptor.metrics.scatter import scatter


@entry()
def lfc(*, features: Any, labels: Any, **_unused: Any) -> float:
    """Label-feature correlation.

    Deshpande et al., A linearized framework and a new benchmark for model selection for fine-tuning, 2021.
    With K = X X^T over the features as they came and L_ij = 1 for equal labels and -1 otherwise::

        LFC = <K - mean(K), L - mean(L)> / ( ||K - mean(K)||_F ||L - mean(L)||_F )

    the Pearson correlation over all N^2 pairs, from -1 to 1. Neither matrix is formed. With m and S the mean
    and covariance of X, pi_c the share and m + e_c the mean of class c, and q = sum_c pi_c^2::

        cov(K, [equal]) = sum_c pi_c^2 (e_c e_c + 2 m e_c)
        var(K) = ||S||_F^2 + 2 m S m        var([equal]) = q (1 - q)

    Constant features and a single class have no correlation: 0.

    Args:
        features: (N, d) of the teacher.
        labels: (N,) class indices of the task.
    """
    features = as_matrix(features, "features")
    indices, classes = compact_labels(labels, len(features))
    _, moments = scatter(features, indices, classes)
    shares = moments.counts / len(features)
    offsets = np.bincount(indices, moments.along_mean, classes) / moments.counts  # m e_c
    covariance = float((shares**2 * ((moments.class_means**2).sum(axis=1) + 2 * offsets)).sum())
    variance = float((moments.covariance**2).sum() + 2 * (moments.along_mean**2).mean())
    equal = float((shares**2).sum())
    if classes == 1 or variance == 0:
        return 0.0
    return covariance / float(np.sqrt(variance * equal * (1 - equal)))
