"""Entropic optimal transport between label distributions: many problems, one cost matrix."""

from .autograd import sinkhorn_distance, sinkhorn_divergence
from .cost import class_centers, classifier_centers, cost_matrix, unit_rows
from .loss import SinkhornLoss, sinkhorn_loss
from .sinkhorn import SinkhornResult, SinkhornWarning, sinkhorn
from .theory import hilbert_metric, kappa

__all__ = [
    "SinkhornLoss",
    "SinkhornResult",
    "SinkhornWarning",
    "class_centers",
    "classifier_centers",
    "cost_matrix",
    "hilbert_metric",
    "kappa",
    "sinkhorn",
    "sinkhorn_distance",
    "sinkhorn_divergence",
    "sinkhorn_loss",
    "unit_rows",
]
