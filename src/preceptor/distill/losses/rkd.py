"""Relational knowledge distillation: distances and angles between samples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from preceptor.distill.losses.geometry import or_one, pair_weights, safe_root, weighted_mean
from preceptor.distill.losses.method import Method, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


def _gram(features: Tensor, weights: Tensor) -> Tensor:
    """Inner products around the mean of the rows that count, as differences ignore the origin: (B, B)."""
    share = weights / or_one(weights.sum())
    centered = features - (share[:, None] * features).sum(dim=0)
    return centered @ centered.T


def _distances(gram: Tensor) -> Tensor:
    norms = gram.diagonal()
    return safe_root(norms[:, None] + norms[None, :] - 2 * gram)


def relative_distances(gram: Tensor, pairs: Tensor) -> Tensor:
    """ψ_D: distances divided by their mean over the pairs that count: (B, B)."""
    lengths = _distances(gram)
    mean = weighted_mean(lengths, pairs)
    return lengths / or_one(mean)


def angles(gram: Tensor) -> Tensor:
    """ψ_A: cosines of the angles at j between i and k, at [j, i, k]: (B, B, B); 0 without length."""
    lengths = _distances(gram)
    inverse = torch.where(lengths > 0, 1 / lengths.clamp_min(1e-12), torch.zeros_like(lengths))
    norms = gram.diagonal()
    products = gram[None, :, :] - gram[:, :, None] - gram[:, None, :] + norms[:, None, None]
    return products * inverse[:, :, None] * inverse[:, None, :]


class Relational(Method):
    """Keep the distances and angles that the teacher sees between the samples of a batch.

    Park et al., "Relational knowledge distillation", 2019: Huber losses between the two
    networks' relative distances and between the cosines of the angles of all triplets, on the last
    features. It needs no common classes or sizes. Means are over different rows; the published program
    has the zeros of equal rows in its means, a hundredth less at 256 rows.

    Weights 25 and 50 are those of the paper's classification experiments. In a short training of a small
    student they drown the labels, above all in the first steps: divide both by 5 before you judge the method.
    """

    name = "rkd"
    uses_unlabelled = True
    reference = "Park et al. 2019"
    term_names = ("task", "distance", "angle")
    relational = True

    def __init__(
        self,
        context: Context,
        *,
        distance_weight: float = 25.0,
        angle_weight: float = 50.0,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.distance_weight, self.angle_weight = distance_weight, angle_weight

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the distance term and the angle term; a weight of 0 leaves its term out."""
        student = step.student.features
        rows = (step.weights > 0).to(student.dtype)
        pairs = pair_weights(step.weights, student.dtype)
        own, other = _gram(student, rows), _gram(teacher_of(step).features.to(student.dtype), rows)
        terms = {"task": task_loss(step)}
        if self.distance_weight:
            huber = functional.smooth_l1_loss(
                relative_distances(own, pairs), relative_distances(other, pairs), reduction="none"
            )
            terms["distance"] = self.distance_weight * weighted_mean(huber, pairs)
        if self.angle_weight:
            huber = functional.smooth_l1_loss(angles(own), angles(other), reduction="none")
            # Both sides of the angle start at j; i = k would compare a constant 1 with itself.
            corners = pairs[:, :, None] * pairs[:, None, :] * pairs[None, :, :]
            terms["angle"] = self.angle_weight * weighted_mean(huber, corners)
        return terms
