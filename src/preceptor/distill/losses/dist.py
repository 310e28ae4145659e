"""DIST: correlations instead of exact matches."""

from __future__ import annotations

import torch
from torch import Tensor

from preceptor.distill.losses.geometry import or_one
from preceptor.distill.losses.method import Method, class_order, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


def correlation(first: Tensor, second: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Pearson's coefficient along `dim` with weights; 0 where a side does not vary."""
    share = weights / or_one(weights.sum(dim=dim, keepdim=True))
    first = first - (share * first).sum(dim=dim, keepdim=True)
    second = second - (share * second).sum(dim=dim, keepdim=True)
    # Sums, not means: beside 1e-16 means over thousands of classes, each with its small probability, are nothing.
    covariance = (weights * first * second).sum(dim=dim)
    variances = (weights * first.square()).sum(dim=dim) * (weights * second.square()).sum(dim=dim)
    return covariance * (variances + 1e-16).rsqrt()


class Dist(Method):
    """Match how the teacher's predictions vary, over classes and over samples.

    Huang et al., "Knowledge distillation from a stronger teacher", 2022: ``ℓ(y, f_S) + τ² · [inter_weight
    · mean_i (1 − r(p_S[i], p_T[i])) + intra_weight · mean_c (1 − r(p_S[:, c], p_T[:, c]))]`` with
    Pearson's r of the softened predictions. For the weights see docs/methods.md.
    """

    name = "dist"
    uses_unlabelled = True
    reference = "Huang et al. 2022"
    needs = frozenset({"teacher", "same-classes"})
    term_names = ("task", "inter", "intra")
    relational = True
    order: Tensor

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        inter_weight: float = 2.0,
        intra_weight: float = 2.0,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.inter_weight, self.intra_weight = temperature, inter_weight, intra_weight
        self.register_buffer("order", class_order(context), persistent=False)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the correlation over classes and the correlation over samples."""
        student = (step.student.logits / self.temperature).softmax(dim=1)
        teacher = teacher_of(step).logits.index_select(1, self.order).to(student.dtype)
        teacher = (teacher / self.temperature).softmax(dim=1)
        by_sample = 1 - correlation(student, teacher, torch.ones_like(student), dim=1)
        rows = (step.weights > 0).to(student.dtype)[:, None].expand_as(student)
        by_class = 1 - correlation(student, teacher, rows, dim=0)
        scale = self.temperature**2
        return {
            "task": task_loss(step),
            "inter": self.inter_weight * scale * row_mean(by_sample, step.weights),
            "intra": self.intra_weight * scale * by_class.mean() * (rows.sum() > 0),
        }
