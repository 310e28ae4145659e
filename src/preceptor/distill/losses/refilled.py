"""ReFilled: comparisons first, then local classifiers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from preceptor.core import PreceptorError
from preceptor.distill.losses.class_costs import student_centers
from preceptor.distill.losses.geometry import distances, pair_weights, unit_rows, weighted_mean
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step

TRIPLETS = ("semihard", "all")


class ReFilledEmbedding(Method):
    """First stage: order the samples of a batch as the teacher does.

    Ye et al., "Distilling cross-task knowledge via relationship matching", 2020. A triplet
    (anchor, positive, negative) is a Bernoulli variable with ``p = σ((d(a, n) − d(a, p)) / τ)`` for unit
    features; the loss is ``KL(p_T ‖ p_S)`` over the triplets that are semi-hard for the student (0 < d(a,
    n) − d(a, p) ≤ margin). τ = 4, margin 0.2 and weight 1,000 are those of the authors' program. There is
    no label loss in this stage (`task_weight` 0).
    """

    name = "refilled-embedding"
    reference = "Ye et al. 2020"
    term_names = ("task", "embedding")
    relational = True

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        margin: float = 0.2,
        weight: float = 1000.0,
        task_weight: float = 0.0,
        triplets: str = "semihard",
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if triplets not in TRIPLETS:
            raise PreceptorError(f"triplets {triplets!r} is unknown; expected one of {', '.join(TRIPLETS)}")
        self.temperature, self.margin, self.triplets = temperature, margin, triplets
        self.weight, self.task_weight = weight, task_weight

    def gaps(self, features: Tensor) -> Tensor:
        """d(a, n) − d(a, p) at [a, p, n]: (B, B, B)."""
        units = unit_rows(features)
        lengths = distances(units, units)
        return lengths[:, None, :] - lengths[:, :, None]

    def terms(self, step: Step) -> dict[str, Tensor]:
        """The divergence between the two networks' comparisons."""
        own, other = self.gaps(step.student.features), self.gaps(teacher_of(step).features)
        pairs = pair_weights(step.weights, own.dtype)
        same = (step.labels[:, None] == step.labels[None, :]).to(own.dtype)
        chosen = (pairs * same)[:, :, None] * (pairs * (1 - same))[:, None, :]
        if self.triplets == "semihard":
            hard = (own.detach() > 0) & (own.detach() <= self.margin)
            chosen = chosen * hard.to(own.dtype)
        own, other = own / self.temperature, other.to(own.dtype) / self.temperature
        agree, differ = torch.sigmoid(other), torch.sigmoid(-other)
        divergence = agree * (functional.logsigmoid(other) - functional.logsigmoid(own))
        divergence = divergence + differ * (functional.logsigmoid(-other) - functional.logsigmoid(-own))
        return {
            "task": self.task_weight * task_loss(step),
            "embedding": self.weight * weighted_mean(divergence, chosen),
        }


class ReFilledClassifier(Method):
    """Second stage: match the teacher's nearest-centre predictions over the classes of a batch.

    Ye et al. 2020: the teacher's features and the student's class centres in its space (unit
    norm) give ``p_T = ρ_τ(⟨φ_T(x), e_c⟩)`` over the classes c that occur in the batch; the loss is ``ℓ(y,
    f_S) + weight · KL(p_T ‖ ρ_τ(f_S restricted to them))`` with τ = 2. The authors tune the weight; 1 is
    ours.
    """

    name = "refilled-classifier"
    reference = "Ye et al. 2020"
    term_names = ("task", "local")
    centers: Tensor

    def __init__(
        self, context: Context, *, temperature: float = 2.0, weight: float = 1.0, **options: object
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.weight = temperature, weight
        self.register_buffer("centers", unit_rows(student_centers(context)))

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the local divergence."""
        logits = step.student.logits
        counts = (step.weights > 0).to(logits.dtype)
        presence = torch.zeros_like(logits[0]).scatter_add(0, step.labels, counts)  # (C_S,)
        absent = self.processes.total(presence) == 0
        teacher = teacher_of(step).features.to(logits.dtype) @ self.centers.to(logits.dtype).T
        # A large negative number, not -inf: the difference of two logarithms has to stay a number.
        floor = torch.finfo(logits.dtype).min / 4
        log_teacher = (teacher / self.temperature).masked_fill(absent, floor).log_softmax(dim=1)
        log_student = (logits / self.temperature).masked_fill(absent, floor).log_softmax(dim=1)
        gap = (log_teacher - log_student).masked_fill(absent, 0.0)
        rows = (log_teacher.exp() * gap).sum(dim=1)
        return {"task": task_loss(step), "local": self.weight * row_mean(rows, step.weights)}
