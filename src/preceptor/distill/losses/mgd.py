"""Matching guided distillation: an assignment between the channels of both networks."""

from __future__ import annotations

import math

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.layers import RowBatchNorm, paired_levels, same_size, teacher_shape
from preceptor.distill.losses.method import Method, full_precision, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


def assign_channels(cost: Tensor) -> Tensor:
    """Give each student channel its teacher channels at the least total cost: (C_S, C_T) to (G, C_S).

    G = max(1, C_T // C_S) teacher channels go to each student channel, none twice unless the student has
    more channels than the teacher; then teacher channels serve ⌈C_S / C_T⌉ times at most.
    """
    student, teacher = cost.shape
    groups, copies = max(1, teacher // student), math.ceil(student / teacher)
    # NaN from a student that diverged is for the loss to show, not for the solver to refuse.
    table = cost.detach().double().nan_to_num().cpu().repeat(groups, copies).numpy()
    _, columns = linear_sum_assignment(table)
    return torch.as_tensor(columns % teacher).reshape(groups, student)


def similarities(student: Tensor, teacher: Tensor) -> Tensor:
    """The cosine of each student's and each teacher's channel for each sample: (B, C_S, C_T)."""
    # Sample by sample: one product over samples and positions at once is too narrow to keep a GPU busy.
    return torch.bmm(unit_rows(student.flatten(2)), unit_rows(teacher.flatten(2)).mT)


def absolute_max(teacher: Tensor, matches: Tensor) -> Tensor:
    """Of the teacher channels matched to a student channel keep the largest in size at each position."""
    groups, channels = matches.shape
    gathered = teacher.index_select(1, matches.flatten()).unflatten(
        1, (groups, channels)
    )  # (B, G, C_S, h, w)
    place = gathered.abs().argmax(dim=1, keepdim=True)
    return gathered.gather(1, place).squeeze(1)


def partial_squares(student: Tensor, teacher: Tensor) -> Tensor:
    """(t − s)², and 0 where s ≤ t ≤ 0: below zero the student need not follow (Heo et al. 2019)."""
    counts = (student > teacher) | (teacher > 0)
    return (teacher - student).square() * counts


class MatchingGuided(Method):
    """Reduce the teacher's channels to the student's by an optimal assignment, then compare maps.

    Yue et al., "Matching guided distillation", 2020. The cost of a student and a teacher channel is the
    squared distance of their unit maps averaged over samples; scipy's assignment solver matches them anew
    once an epoch (or every `update_every` steps) from the costs since the last time; matched teacher
    channels are reduced by absolute max pooling; the loss is the partial squared distance to the
    normalised student map, summed over positions, with weight 1e-3 (that of Heo et al., whose distance it
    is) and half as much for each shallower level, as in the authors' program. Its margins, which come
    from the teacher's batch normalisation layers, are left out: a teacher here shows only its maps.
    """

    name = "mgd"
    reference = "Yue et al. 2020"
    needs = frozenset({"teacher", "maps"})
    term_names = ("task", "matching")

    def __init__(
        self, context: Context, *, weight: float = 1e-3, update_every: int | None = None, **options: object
    ) -> None:
        super().__init__(context, **options)
        if update_every is not None and update_every < 1:
            raise PreceptorError(
                f"update_every {update_every} came; expected a number of steps of at least 1"
            )
        self.weight, self.update_every, self.num_train = weight, update_every, context.num_train
        self.levels = paired_levels(context)
        self.steps = 0
        own = [context.student_shape.maps[student].shape[1] for student, _ in self.levels]
        theirs = [teacher_shape(context).maps[teacher].shape[1] for _, teacher in self.levels]
        self.norms = nn.ModuleList(RowBatchNorm(channels) for channels in own)
        for level, (student, teacher) in enumerate(zip(own, theirs, strict=True)):
            self.register_buffer(f"cost_{level}", torch.zeros(student, teacher))
            self.register_buffer(f"matches_{level}", assign_channels(torch.zeros(student, teacher)))

    def get_extra_state(self) -> Tensor:
        """The number of steps taken, which says when channels are matched again."""
        return torch.tensor(self.steps)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue counting where a checkpoint stopped."""
        self.steps = int(state)

    @torch.no_grad()
    def _follow(self, level: int, student: Tensor, teacher: Tensor, weights: Tensor) -> None:
        """Add this batch to the costs of a level, and match its channels when the time has come."""
        cost: Tensor = getattr(self, f"cost_{level}")
        share = weights.to(student.dtype)
        similar = torch.tensordot(share, similarities(student, teacher), dims=1)
        cost += self.processes.total((2 * share.sum() - 2 * similar).to(cost.dtype))
        batch = self.processes.count * len(weights)
        every = self.update_every or max(1, math.ceil(self.num_train / batch))
        if cost.is_cuda and torch.cuda.is_current_stream_capturing():
            raise PreceptorError(
                "method mgd matches channels on the host, which a CUDA graph cannot; run without"
            )
        if self.steps % every == 0:
            matches: Tensor = getattr(self, f"matches_{level}")
            matches.copy_(assign_channels(cost))
            cost.zero_()

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the distances to the matched, reduced teacher maps."""
        teacher_maps = teacher_of(step).maps
        rows = torch.zeros_like(step.student.logits[:, 0])
        for level, (own, theirs) in enumerate(self.levels):
            student, teacher = same_size(
                full_precision(step.student.maps[own]), full_precision(teacher_maps[theirs])
            )
            self._follow(level, student.detach(), teacher, step.weights)
            reduced = absolute_max(teacher, getattr(self, f"matches_{level}"))
            gap = partial_squares(self.norms[level](student, step.weights), reduced).sum(dim=(1, 2, 3))
            rows = rows + gap / 2 ** (len(self.levels) - 1 - level)
        self.steps += 1
        return {"task": task_loss(step), "matching": self.weight * row_mean(rows, step.weights)}
