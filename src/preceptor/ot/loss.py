"""The distillation term of Eq. (11): from logits to one number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .autograd import sinkhorn_distance
from .validation import check_finite, check_positive, check_tensors


def sinkhorn_loss(
    student_logits: Tensor,
    teacher_logits: Tensor,
    cost: Tensor,
    epsilon: float = 0.1,
    temperature: float = 3.0,
    reduction: str = "mean",
) -> Tensor:
    """The second term of Eq. (11) without its weight: the Sinkhorn distance of softened predictions.

    Args:
        student_logits: (B, C_S)
        teacher_logits: (B, C_T)
        cost: (C_T, C_S)
        epsilon: weight of the entropy, in the units of the cost.
        temperature: of both softmaxes, Eq. (10).
        reduction: "mean" over the batch, or "none" for (B,). The mean over an empty batch is NaN, as with torch's own
            losses.
    """
    check_positive(temperature=temperature)
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction={reduction!r} came; 'mean' or 'none' was expected")
    check_tensors(student_logits=student_logits, teacher_logits=teacher_logits, cost=cost)
    # Half-precision logits (autocast) are softened in float32: half cannot hold a distribution.
    given = torch.promote_types(student_logits.dtype, teacher_logits.dtype)
    precision = torch.promote_types(given, torch.float32)
    teacher = torch.softmax(teacher_logits.to(precision) / temperature, dim=-1)  # Eq. (10)
    student = torch.softmax(student_logits.to(precision) / temperature, dim=-1)  # Eq. (10)
    try:
        cost = cost.to(torch.promote_types(cost.dtype, precision))
        values = sinkhorn_distance(teacher, student, cost, epsilon)
    except ValueError:
        check_finite(student_logits=student_logits, teacher_logits=teacher_logits)  # by the caller's names
        raise
    return values.mean() if reduction == "mean" else values


class SinkhornLoss(nn.Module):
    """`sinkhorn_loss` with a copy of its cost and its settings: `weight` times the mean over the batch."""

    def __init__(self, cost: Tensor, epsilon: float = 0.1, temperature: float = 3.0, weight: float = 1.0):
        super().__init__()
        check_tensors(cost=cost)
        check_positive(epsilon=epsilon, temperature=temperature)
        self.cost: Tensor
        self.register_buffer("cost", cost.detach().clone())
        self.epsilon = epsilon
        self.temperature = temperature
        self.weight = weight

    def forward(self, student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
        """The weighted second term of Eq. (11)."""
        loss = sinkhorn_loss(student_logits, teacher_logits, self.cost, self.epsilon, self.temperature)
        return self.weight * loss

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"epsilon={self.epsilon}, temperature={self.temperature}, weight={self.weight}"
