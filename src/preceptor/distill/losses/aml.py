"""Asymmetric metric learning: the student's sample against the teacher's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.geometry import distances, unit_rows
from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step

LOSSES = ("contrastive", "regression")


def _mean_where(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)


class AsymmetricMetric(Method):
    """Metric learning with the anchor from the student, positives and negatives from the teacher.

    Budnik and Avrithis, "Asymmetric metric learning for knowledge transfer", 2021. With d the distance of
    unit vectors, g the student (brought to the teacher's dimension by a linear layer), f the teacher,
    each anchor a has the contrastive loss ``mean_p ½ d(g(a), f(p))² + mean_n ½ [margin − d(g(a),
    f(n))]₊²``. Positives share the label and, with `include_self` (the paper's "Contr+"), are the anchor
    itself as the teacher sees it. ``loss="regression"`` keeps only that last pair. The paper has no task
    loss: the weight 1 beside the cross-entropy is ours. For the margin see docs/methods.md.
    """

    name = "aml"
    reference = "Budnik and Avrithis 2021"
    term_names = ("task", "metric")
    relational = True

    def __init__(
        self,
        context: Context,
        *,
        weight: float = 1.0,
        margin: float = 0.7,
        loss: str = "contrastive",
        include_self: bool = True,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if loss not in LOSSES:
            raise PreceptorError(f"loss {loss!r} is unknown; expected one of {', '.join(LOSSES)}")
        self.weight, self.margin, self.loss, self.include_self = weight, margin, loss, include_self
        with seeded(context):
            self.projection = nn.Linear(
                context.student_shape.features.shape[1], teacher_shape(context).features.shape[1]
            )

    def rows(self, step: Step) -> Tensor:
        """The metric loss of each anchor: (B,)."""
        student = unit_rows(self.projection(step.student.features))
        teacher = unit_rows(teacher_of(step).features.to(student.dtype))
        if self.loss == "regression":
            return 0.5 * (student - teacher).square().sum(dim=1)
        lengths = distances(student, teacher)
        counts = (step.weights > 0).to(student.dtype)[None, :]
        same = (step.labels[:, None] == step.labels[None, :]).to(student.dtype)
        self_pairs = torch.eye(len(same), dtype=student.dtype, device=same.device)
        positives = (same if self.include_self else same - self_pairs) * counts
        pull = _mean_where(0.5 * lengths.square(), positives)
        push = _mean_where(0.5 * (self.margin - lengths).clamp_min(0).square(), (1 - same) * counts)
        return pull + push

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the asymmetric metric loss."""
        return {"task": task_loss(step), "metric": self.weight * row_mean(self.rows(step), step.weights)}
