"""The fictitious student: multinomial logistic regression with an L2 penalty on a teacher's features.

The paper says "linear model" and no more. The model here is the minimum of

    mean_i CE(y_i, W x_i + b) + |W|^2 / (2 strength N)

over W and b, with x the features centred and divided by their root mean squared norm, so that the mean of
|x|^2 is 1 whatever the teacher's scale. One scale for all dimensions keeps the answer independent of
rotations of the feature space and does not blow up dimensions that carry only noise. In scikit-learn's terms
this is `LogisticRegression(C=strength)` on those x.

`strength` is 10, and the same for all teachers: the optimum is flat around it, and a choice for each would cost
several fits and add its own noise to the ranking. `preceptor.distill.losses.fit_probe` fits the probe that a student
learns from: it is fitted once for a training and its predictions are taught, so there the penalty is chosen on
held-out rows, and dimensions are standardised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from preceptor.metrics.inputs import Array, as_tensor
from preceptor.metrics.lbfgs import Solution, minimize
from preceptor.metrics.problem import Preconditioner, Problem
from preceptor.metrics.scatter import Scatter

STRENGTH = 10.0


@dataclass(frozen=True)
class Design:
    """Centred and scaled features with their moments; for N < d their coordinates in their span, as W."""

    values: Tensor  # (N, r) float32, mean |x|^2 = 1
    sums: Tensor  # (C, r) of the rows of each class
    factor: float  # what the centred features were multiplied by: 0 for constant ones
    moments: Scatter

    @property
    def gram(self) -> Tensor:
        """X^T X / N, (r, r)."""
        # In float64 first: the squares of large features are beyond float32.
        return torch.from_numpy(self.moments.covariance).mul(self.factor**2).float()

    def preconditioner(self, strength: float) -> Preconditioner:
        """For fits on all or most of the rows; made once for all metrics."""
        kept, key = self.moments.kept, ("preconditioner", strength)
        if key not in kept:
            kept[key] = Preconditioner.of(self.gram, len(self.sums), 1 / (strength * len(self.values)))
        return kept[key]


def prepare(values: Array, moments: Scatter, rows: Array | None = None) -> Design:
    """Centre and scale what `scatter` gave; its rows in the order of `rows`, if that came."""
    scale = float(np.sqrt(moments.total_variance))
    # What rounding leaves of a constant is not a signal to be scaled up.
    constant = scale <= 4 * float(np.finfo(values.dtype).eps) * moments.offset
    factor = 0.0 if constant else 1 / scale
    centred = (values if rows is None else values[rows]) - moments.mean.astype(values.dtype)
    centred *= values.dtype.type(factor)
    sums = moments.class_means * moments.counts[:, None] * factor
    return Design(torch.from_numpy(centred).float(), torch.from_numpy(sums).float(), factor, moments)


def fit_probe(
    design: Design,
    labels: Array,
    *,
    strength: float = STRENGTH,
    tolerance: float = 0.01,
    max_iterations: int = 200,
) -> Solution:
    """The probe on all samples of `design`.

    Args:
        design: what `prepare` made of the features.
        labels: (N,) class indices, the same as the moments were taken with.
        strength: scikit-learn's C: the inverse of the penalty.
        tolerance: the fit ends when the duality gap, which bounds the distance from the minimum, is below
            this share of the loss. The distance itself is about a tenth of that.
        max_iterations: each costs two products of the features with a (d, C) matrix.
    """
    own = as_tensor(labels)[:, None]
    penalty = 1 / (strength * len(design.values))
    problem = Problem((design.values,), own, design.sums, penalty, design.preconditioner(strength))
    return minimize(problem, tolerance, max_iterations)
