"""Wasserstein contrastive representation distillation: dual critic and primal transport."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from preceptor import ot
from preceptor.distill.losses.geometry import pair_weights, unit_rows, weighted_mean
from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class WassersteinContrastive(Method):
    """Tell matching pairs of features from others, and transport one batch of features onto the other.

    Chen et al., "Wasserstein contrastive representation distillation", 2021. Global term (dual form): a
    critic g, held back by spectral normalisation, should be high on the two networks' features of one
    sample and low on those of different samples, ``−(E_joint[g(t, s)] − E_product[g(t, s)])``.
    Local term (primal form): ``min_T ⟨T, C⟩`` with C the cosine distance between all student and teacher
    features of the batch, solved by Sinkhorn iterations; the gradient flows through C at the optimal T
    (envelope theorem). Negatives come from the batch, where the paper draws them from a memory of all
    samples. g(t, s) is the inner product of unit embeddings of `width` numbers; where a linear layer gives
    short ones, bringing them to unit length makes g steeper than the 1-Lipschitz critic of the paper.
    """

    name = "wcord"
    reference = "Chen et al. 2021"
    term_names = ("task", "global", "local")
    relational = True

    def __init__(
        self,
        context: Context,
        *,
        global_weight: float = 0.8,
        local_weight: float = 0.05,
        width: int = 128,
        epsilon: float = 0.1,
        tolerance: float = 1e-3,
        max_iterations: int = 200,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.global_weight, self.local_weight, self.epsilon = global_weight, local_weight, epsilon
        self.tolerance, self.max_iterations = tolerance, max_iterations
        own, theirs = context.student_shape.features.shape[1], teacher_shape(context).features.shape[1]
        with seeded(context):
            self.student_critic = spectral_norm(nn.Linear(own, width))
            self.teacher_critic = spectral_norm(nn.Linear(theirs, width))

    def plan(self, cost: Tensor, weights: Tensor) -> Tensor:
        """The optimal transport between the rows that count, each with the same mass: (B, B)."""
        counts = (weights > 0).to(cost.dtype)
        total = counts.sum()
        mass = torch.where(total > 0, counts / total.clamp_min(1), torch.full_like(counts, 1 / len(counts)))
        result = ot.sinkhorn(
            mass[None],
            mass[None],
            cost.detach().nan_to_num(),  # the solver refuses NaN; the product with the cost is NaN again
            epsilon=self.epsilon,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        return result.plan()[0].to(cost.dtype) * (total > 0)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the contrast of the critic and the transport cost."""
        student = unit_rows(self.student_critic(step.student.features))
        teacher = unit_rows(self.teacher_critic(teacher_of(step).features.to(step.student.features.dtype)))
        scores = student @ teacher.T  # (B, B)
        contrast = row_mean(scores.diagonal(), step.weights)
        contrast = contrast - weighted_mean(scores, pair_weights(step.weights, scores.dtype))
        cost = 1 - scores
        return {
            "task": task_loss(step),
            "global": -self.global_weight * contrast,
            "local": self.local_weight * (self.plan(cost, step.weights) * cost).sum(),
        }
