"""Decoupled knowledge distillation: the target class and the others apart."""

from __future__ import annotations

import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.losses.method import Method, class_order, row_mean, task_loss, teacher_of, up_to_one
from preceptor.distill.losses.step import Context, Step


class Decoupled(Method):
    """Hinton's divergence split into the target class against the rest, and the rest among themselves.

    Zhao et al., "Decoupled knowledge distillation", 2022:
    ``target_weight · KL(b_T ‖ b_S) + other_weight · KL(p̂_T ‖ p̂_S)``, times τ², where b = (p_t, 1 − p_t)
    and p̂ is the prediction over the other classes alone. Weights 1 and 8, τ = 4 and a linear warm-up
    over the first 20 of 240 epochs are the paper's for CIFAR-100.
    """

    name = "dkd"
    reference = "Zhao et al. 2022"
    needs = frozenset({"teacher", "same-classes"})
    term_names = ("task", "target", "others")
    order: Tensor

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        target_weight: float = 1.0,
        other_weight: float = 8.0,
        warmup: float = 20 / 240,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if not 0 <= warmup <= 1:
            raise PreceptorError(f"warmup is {warmup}; expected a share of training from 0 to 1")
        self.temperature, self.warmup = temperature, warmup
        self.target_weight, self.other_weight = target_weight, other_weight
        self.register_buffer("order", class_order(context), persistent=False)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the target-class divergence and the divergence among the other classes."""
        student = step.student.logits / self.temperature
        teacher = teacher_of(step).logits.index_select(1, self.order).to(student.dtype) / self.temperature
        target = step.labels[:, None] == torch.arange(student.shape[1], device=student.device)
        log_student, log_teacher = _split(student, target), _split(teacher, target)
        binary = (log_teacher.binary.exp() * (log_teacher.binary - log_student.binary)).sum(dim=1)
        gap = (log_teacher.others - log_student.others).masked_fill(target, 0.0)
        others = (log_teacher.others.exp() * gap).sum(dim=1)
        scale = self.temperature**2 * (up_to_one(step.progress / self.warmup) if self.warmup else 1.0)
        return {
            "task": task_loss(step),
            "target": scale * self.target_weight * row_mean(binary, step.weights),
            "others": scale * self.other_weight * row_mean(others, step.weights),
        }


class _Logs:
    """Logarithms of (p_t, 1 − p_t) and of the prediction over the other classes."""

    def __init__(self, binary: Tensor, others: Tensor) -> None:
        self.binary, self.others = binary, others


def _split(logits: Tensor, target: Tensor) -> _Logs:
    # A large negative number, not -inf: with one class alone -inf minus -inf would be no number.
    floor = torch.finfo(logits.dtype).min / 4
    without = logits.masked_fill(target, floor)
    target_logit = logits.masked_fill(~target, 0.0).sum(dim=1)
    binary = torch.stack([target_logit, without.logsumexp(dim=1)], dim=1).log_softmax(dim=1)
    return _Logs(binary.clamp_min(floor), without.log_softmax(dim=1))
