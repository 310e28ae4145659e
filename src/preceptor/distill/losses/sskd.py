"""Self-supervision as an auxiliary task for distillation: rotated views and their similarities."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.kd import kl_rows
from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, class_order, row_mean, teacher_of
from preceptor.distill.losses.step import Context, Step

VIEWS = 4


def _head(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def similarities(features: Tensor, rows: int) -> Tensor:
    """Cosines between each rotated view and each upright image: (3B, B)."""
    units = unit_rows(features)
    return units[rows:] @ units[:rows].T


def reliable(scores: Tensor, counts: Tensor, share: float) -> Tensor:
    """Views whose own image the teacher ranks first, and the best-ranked `share` of the others, as 0 and 1.

    Args:
        scores: (3B, B) the teacher's similarities; the own image of row r is column r mod B.
        counts: (3B,) 1 for rows that count.
        share: How many of the wrongly ranked views to keep.
    """
    rows, columns = scores.shape
    own = torch.arange(rows, device=scores.device) % columns
    rank = (scores > scores.gather(1, own[:, None])).sum(dim=1)  # 0: the own image comes first
    rank = torch.where(counts > 0, rank, columns + 1)  # padding to the end
    place = rank.argsort(stable=True).argsort(stable=True)
    right = (rank == 0).sum()
    wrong = (counts > 0).sum() - right
    return (place < right + (share * wrong).floor()).to(scores.dtype)


class SelfSupervisionKD(Method):
    """Distil predictions, and how rotated views resemble the upright images of a batch.

    Xu et al., "Knowledge distillation meets self-supervision", 2020. `expand` adds the rotations by 90°,
    180° and 270°. Terms: cross-entropy and KD on upright images (0.1 and 0.9), KD on rotated ones (2.7),
    and ``τ_s² KL`` between the two networks' softmax over similarities ⟨rotated view, upright image⟩
    through contrast heads (10), over the views that the teacher ranks right and the best 75 % of the
    others. τ = 4, τ_s = 0.5: all as in the authors' program. It trains the teacher's head beforehand on
    the frozen teacher; `teacher_head` takes such a head's state (two linear layers, as
    `self.teacher_head`), and without one the head is trained here, on the teacher's detached features,
    and the similarity term sets in after `head_only` of the training.
    """

    name = "sskd"
    reference = "Xu et al. 2020"
    needs = frozenset({"teacher", "same-classes", "views"})
    term_names = ("task", "kd", "rotated_kd", "similarity", "teacher_head")
    relational = True
    order: Tensor

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        contrast_temperature: float = 0.5,
        task_weight: float = 0.1,
        kd_weight: float = 0.9,
        rotated_weight: float = 2.7,
        similarity_weight: float = 10.0,
        wrong_share: float = 0.75,
        head_only: float = 0.1,
        teacher_head: Mapping[str, Tensor] | None = None,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.contrast_temperature = temperature, contrast_temperature
        self.task_weight, self.kd_weight, self.rotated_weight = task_weight, kd_weight, rotated_weight
        self.similarity_weight, self.wrong_share, self.head_only = similarity_weight, wrong_share, head_only
        self.register_buffer("order", class_order(context), persistent=False)
        with seeded(context):
            self.student_head = _head(context.student_shape.features.shape[1])
            self.teacher_head = _head(teacher_shape(context).features.shape[1])
        self.ready = teacher_head is not None
        if teacher_head is not None:
            self.teacher_head.load_state_dict(dict(teacher_head))
            self.teacher_head.requires_grad_(False)

    def expand(self, images: Tensor) -> Tensor:
        """The batch, then its rotations by 90°, 180° and 270°: (4B, c, h, w)."""
        if images.ndim != 4 or images.shape[2] != images.shape[3]:
            raise PreceptorError(
                f"method sskd rotates images and needs square ones; {tuple(images.shape[1:])} came: "
                "crop or resize them, or use another method"
            )
        return torch.cat([images.rot90(turns, (2, 3)) for turns in range(VIEWS)])

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, KD on upright and rotated images, similarities, the teacher's contrast head."""
        teacher = teacher_of(step)
        rows = len(step.student.logits) // VIEWS
        upright = step.weights[:rows]
        rotated = upright.repeat(VIEWS - 1)
        kd = kl_rows(teacher.logits.index_select(1, self.order), step.student.logits, self.temperature)
        scores = similarities(self.teacher_head(teacher.features), rows)
        own = similarities(self.student_head(step.student.features), rows)
        # Padding columns are no images to resemble.
        absent = (upright <= 0)[None, :]
        scores, own = scores.masked_fill(absent, -1e4), own.masked_fill(absent, -1e4)
        ratio = self.contrast_temperature
        chosen = rotated.to(own.dtype) * reliable(scores.detach(), rotated, self.wrong_share)
        similar = kl_rows(scores.detach(), own, ratio)
        # A product, not a condition: the progress may be a tensor that nobody should wait for.
        begun = 1.0 if self.ready else (step.progress >= self.head_only) * 1.0
        terms = {
            "task": self.task_weight * self._task(step, rows),
            "kd": self.kd_weight * row_mean(kd[:rows], upright),
            "rotated_kd": self.rotated_weight * row_mean(kd[rows:], rotated),
            "similarity": self.similarity_weight * begun * row_mean(similar, chosen),
        }
        if not self.ready:
            target = torch.arange(len(scores), device=scores.device) % rows
            head = -scores.log_softmax(dim=1).gather(1, target[:, None]).squeeze(1)
            terms["teacher_head"] = row_mean(head, rotated)
        return terms

    def _task(self, step: Step, rows: int) -> Tensor:
        """The label loss on upright images only, whether or not the loop has repeated the labels."""
        logits = step.student.logits[:rows]
        loss = -(step.targets[:rows].to(logits.dtype) * logits.log_softmax(dim=1)).sum(dim=1)
        return row_mean(loss, step.weights[:rows])
