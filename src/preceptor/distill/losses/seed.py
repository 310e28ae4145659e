"""SEED: similarities to a queue of the teacher's earlier features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class SelfSupervised(Method):
    """Look at a queue of samples through the teacher's eyes.

    Fang et al., "SEED: self-supervised distillation for visual representation", 2021: cross-entropy
    between ``softmax(⟨z_T, D⟩ / τ_T)`` and ``softmax(⟨z_S, D⟩ / τ_S)``, where D holds the unit features
    that the teacher gave for the last `queue_size` samples, and for this one. τ_S = 0.2 and 65,536 places
    are those of the authors' program, whose τ_T = 1e-4 leaves only the sample itself as a target; 0.01
    leaves its neighbours too. The queue is never longer than the training set. A two-layer head brings
    the student to the teacher's dimension. The paper uses no labels; the weight 1 beside the
    cross-entropy is ours.
    """

    name = "seed"
    reference = "Fang et al. 2021"
    term_names = ("task", "similarity")
    relational = True
    queue: Tensor
    filled: Tensor
    place: Tensor

    def __init__(
        self,
        context: Context,
        *,
        weight: float = 1.0,
        teacher_temperature: float = 0.01,
        student_temperature: float = 0.2,
        queue_size: int = 65536,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if queue_size < 1:
            raise PreceptorError(f"queue_size {queue_size} came; a queue needs at least one place")
        self.weight = weight
        self.teacher_temperature, self.student_temperature = teacher_temperature, student_temperature
        width = teacher_shape(context).features.shape[1]
        own = context.student_shape.features.shape[1]
        size = min(queue_size, max(1, context.num_train))
        with seeded(context):
            self.head = nn.Sequential(nn.Linear(own, own), nn.ReLU(), nn.Linear(own, width))
        self.register_buffer("queue", torch.zeros(size, width))
        self.register_buffer("filled", torch.zeros(size))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy with the labels, and between the two views of the queue; then the queue moves on."""
        student = unit_rows(self.head(step.student.features))
        teacher = unit_rows(teacher_of(step).features.to(student.dtype))
        own = self._similarities(student, teacher) / self.student_temperature
        other = self._similarities(teacher, teacher) / self.teacher_temperature
        own, other = self._without_empty(own), self._without_empty(other)
        rows = -(other.softmax(dim=1) * own.log_softmax(dim=1)).sum(dim=1)
        self._remember(teacher, step.weights)
        return {"task": task_loss(step), "similarity": self.weight * row_mean(rows, step.weights)}

    def _similarities(self, rows: Tensor, teacher: Tensor) -> Tensor:
        """To the teacher's view of the same sample and to the queue: (B, 1 + K)."""
        queue = self.queue.to(rows.dtype).clone()  # moved on below, while this step's graph still needs it
        return torch.cat([(rows * teacher).sum(dim=1, keepdim=True), rows @ queue.T], dim=1)

    def _without_empty(self, logits: Tensor) -> Tensor:
        # A large negative number, not -inf: 0 times it is 0 in the cross-entropy.
        empty = torch.cat([torch.zeros_like(self.filled[:1]), 1 - self.filled]).bool()
        return logits.masked_fill(empty, torch.finfo(logits.dtype).min / 4)

    @torch.no_grad()
    def _remember(self, teacher: Tensor, weights: Tensor) -> None:
        rows = teacher[-len(self.queue) :]
        counts = (weights > 0)[-len(self.queue) :]
        # Rows that count first, padding behind them: the next batch overwrites the places of padding.
        order = (~counts).to(torch.int8).argsort(stable=True)
        places = (self.place + torch.arange(len(rows), device=rows.device)) % len(self.queue)
        keep = counts[order]
        old = self.queue[places]
        self.queue[places] = torch.where(keep[:, None], rows[order].to(old.dtype), old)
        self.filled[places] = torch.where(keep, torch.ones_like(self.filled[places]), self.filled[places])
        self.place.copy_((self.place + keep.sum()) % len(self.queue))
