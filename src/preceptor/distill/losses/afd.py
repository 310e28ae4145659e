"""Attention-based feature distillation: which student map learns from which teacher map is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.layers import RowBatchNorm, seeded, teacher_shape
from preceptor.distill.losses.method import Method, full_precision, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class _Embedding(nn.Module):
    """A linear layer with normalisation, as queries and keys have it."""

    def __init__(self, channels: int, width: int, activate: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, width)
        self.norm = RowBatchNorm(width)
        self.activate = activate

    def forward(self, pooled: Tensor, weights: Tensor) -> Tensor:
        values = self.norm(self.linear(pooled), weights)
        return values.relu() if self.activate else values


class AttentionFeatures(Method):
    """Let attention pair the levels of teacher and student.

    Ji et al., "Show, attend and distill: knowledge distillation via attention-based feature matching",
    2021: queries from the teacher's pooled maps, keys from the student's, ``α_t = softmax_s((q_tᵀ W_t k_s
    + p_tᵀ p_s) / √d)`` with learned positions p, and the loss ``Σ_t Σ_s α_ts · mean (φ(h_t) − φ(h_s))²``,
    φ the channel mean of squares, brought to the teacher's size and to unit norm. Weight 200 is that of
    the authors' example, d = 128. Queries, keys and W have batch normalisation, keys a ReLU too, as in
    their program; here the statistics leave out padding rows and are not kept.
    """

    name = "afd"
    reference = "Ji et al. 2021"
    needs = frozenset({"teacher", "maps"})
    term_names = ("task", "attention")

    def __init__(
        self, context: Context, *, weight: float = 200.0, width: int = 128, **options: object
    ) -> None:
        super().__init__(context, **options)
        self.weight, self.width = weight, width
        student = [maps.shape[1] for maps in context.student_shape.maps]
        teacher = [maps.shape[1] for maps in teacher_shape(context).maps]
        with seeded(context):
            self.queries = nn.ModuleList(_Embedding(channels, width, activate=False) for channels in teacher)
            self.keys = nn.ModuleList(_Embedding(channels, width, activate=True) for channels in student)
            self.bilinear = _Embedding(width, width * len(teacher), activate=False)
            self.teacher_places = nn.Parameter(nn.init.xavier_normal_(torch.empty(len(teacher), width)))
            self.student_places = nn.Parameter(nn.init.xavier_normal_(torch.empty(len(student), width)))

    def attention(self, student: list[Tensor], teacher: list[Tensor], weights: Tensor) -> Tensor:
        """α of each row, which student level each teacher level looks at: (B, T, S)."""
        keys = [key(m.mean(dim=(2, 3)), weights) for key, m in zip(self.keys, student, strict=True)]
        # One layer for all levels at once, its statistics over them too: (S·B, T·d).
        turned = self.bilinear(torch.cat(keys), weights.repeat(len(keys)))
        turned = turned.unflatten(0, (len(keys), -1)).unflatten(2, (len(teacher), -1))  # (S, B, T, d)
        queries = [query(m.mean(dim=(2, 3)), weights) for query, m in zip(self.queries, teacher, strict=True)]
        logits = torch.einsum("sbtd,btd->bts", turned, torch.stack(queries, dim=1))
        places = self.teacher_places @ self.student_places.T
        return ((logits + places) * self.width**-0.5).softmax(dim=2)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the attended distances between maps."""
        student = [full_precision(maps) for maps in step.student.maps]
        teacher = [full_precision(maps) for maps in teacher_of(step).maps]
        weights = self.attention(student, teacher, step.weights)
        rows = torch.zeros_like(step.student.logits[:, 0])
        for level, theirs in enumerate(teacher):
            wanted = unit_rows(_energy(theirs, theirs.shape[2:]))
            for other, ours in enumerate(student):
                gap = (unit_rows(_energy(ours, theirs.shape[2:])) - wanted).square().mean(dim=1)
                rows = rows + weights[:, level, other] * gap
        return {"task": task_loss(step), "attention": self.weight * row_mean(rows, step.weights)}


def _energy(maps: Tensor, size: torch.Size) -> Tensor:
    """The channel mean of squares, averaged or repeated to the given size, flattened: (B, h·w)."""
    energy = maps.square().mean(dim=1, keepdim=True)
    return functional.adaptive_avg_pool2d(energy, (size[0], size[1])).flatten(1)
