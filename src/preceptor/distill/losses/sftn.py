"""Student-friendly teachers: the teacher is trained with student branches, then taught from as usual."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.distill.losses.kd import KnowledgeDistillation, kl_rows
from preceptor.distill.losses.layers import seeded
from preceptor.distill.losses.method import Method, full_precision, row_mean, task_loss
from preceptor.distill.losses.step import Context, Step


class StudentFriendly(KnowledgeDistillation):
    """The second stage: plain distillation from a teacher that was trained with student branches.

    Park et al., "Learning student-friendly teacher networks for knowledge distillation", 2021:
    any method may follow; the paper's first choice is Hinton's. `StudentFriendlyTeacher` is the loss of
    the first stage.
    """

    name = "sftn"
    uses_unlabelled = False  # a stage of a schedule
    reference = "Park et al. 2021"
    needs = frozenset({"teacher", "same-classes", "special-teacher"})


class StudentBranch(nn.Module):
    """From a teacher's map through blocks of the student's shape to logits.

    A 1 x 1 convolution brings the map to the student's channels at that level; then one 3 x 3 convolution
    with normalisation for each later level of the student, pooling, and a linear layer.
    """

    def __init__(self, channels: int, student_maps: Sequence[Tensor], level: int, num_classes: int) -> None:
        super().__init__()
        widths = [maps.shape[1] for maps in student_maps]
        sizes = [maps.shape[2] for maps in student_maps]
        blocks: list[nn.Module] = [nn.Conv2d(channels, widths[level], 1, bias=False)]
        for later in range(level + 1, len(widths)):
            stride = max(1, round(sizes[later - 1] / sizes[later]))
            blocks += [
                nn.GroupNorm(1, widths[later - 1]),
                nn.ReLU(),
                nn.Conv2d(widths[later - 1], widths[later], 3, stride=stride, padding=1, bias=False),
            ]
        self.blocks = nn.Sequential(*blocks, nn.GroupNorm(1, widths[-1]), nn.ReLU())
        self.classifier = nn.Linear(widths[-1], num_classes)

    def forward(self, maps: Tensor) -> Tensor:
        """Logits of the branch."""
        return self.classifier(self.blocks(maps).mean(dim=(2, 3)))


class StudentFriendlyTeacher(Method):
    """The first stage: train the teacher together with branches shaped like the student.

    Park et al. 2021: ``λ_T ℓ(y, q_T) + Σ_i [λ_KL τ² KL(q_T ‖ q_i) + λ_CE ℓ(y, q_i)]`` over branches i
    that start at the teacher's maps; for the weights see docs/methods.md. In this stage the network in
    training is the teacher: it stands at `step.student`. The paper's branches are the student's own later
    blocks; the default branches here have its channels and strides with one convolution a level, and
    `branches` takes ready ones, a module for each of the teacher's maps from the shallowest (each takes
    the map, gives logits).
    """

    name = "sftn-teacher"
    reference = "Park et al. 2021"
    needs = frozenset()
    term_names = ("task", "branch_kd", "branch_task")

    def __init__(
        self,
        context: Context,
        *,
        student_shape: ModelOutput | None = None,
        branches: Sequence[nn.Module] | None = None,
        temperature: float = 1.0,
        task_weight: float = 1.0,
        kd_weight: float = 3.0,
        branch_weight: float = 1.0,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.task_weight = temperature, task_weight
        self.kd_weight, self.branch_weight = kd_weight, branch_weight
        own = context.student_shape.maps
        if not own:
            raise PreceptorError(f"method {self.name} branches off feature maps and this network gives none")
        if branches is None:
            branches = self._default_branches(context, student_shape)
        if len(branches) > len(own):
            raise PreceptorError(
                f"{len(branches)} branches came for {len(own)} feature maps; give at most one each"
            )
        self.branches = nn.ModuleList(branches)

    def _default_branches(self, context: Context, student_shape: ModelOutput | None) -> list[nn.Module]:
        own = context.student_shape.maps
        target = own if student_shape is None else student_shape.maps
        if not target:
            raise PreceptorError(
                f"method {self.name} copies the student's shape and the student has no feature maps"
            )
        # The deepest map would leave the branch nothing but a classifier.
        count = max(1, min(len(own), len(target)) - 1)
        with seeded(context):
            return [
                StudentBranch(own[level].shape[1], target, level, len(context.student_classes))
                for level in range(count)
            ]

    def terms(self, step: Step) -> dict[str, Tensor]:
        """The network's own cross-entropy, and each branch's divergence from it and from the labels."""
        logits = step.student.logits
        kd = torch.zeros_like(logits[:, 0])
        task = torch.zeros_like(kd)
        for branch, maps in zip(self.branches, step.student.maps, strict=False):
            guess = branch(full_precision(maps))
            kd = kd + kl_rows(logits, guess, self.temperature)
            task = task - (step.targets.to(guess.dtype) * guess.log_softmax(dim=1)).sum(dim=1)
        return {
            "task": self.task_weight * task_loss(step),
            "branch_kd": self.kd_weight * row_mean(kd, step.weights),
            "branch_task": self.branch_weight * row_mean(task, step.weights),
        }
