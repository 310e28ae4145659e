"""Variational information distillation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from preceptor.core import PreceptorError
from preceptor.distill.losses.layers import paired_levels, same_size, seeded, teacher_shape
from preceptor.distill.losses.method import Method, full_precision, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class _GaussianRegressor(nn.Module):
    """q(t | s): a mean from three 1 x 1 convolutions and a learned variance for each channel."""

    def __init__(self, student: int, teacher: int, variance: float, floor: float) -> None:
        super().__init__()
        self.mean = nn.Sequential(
            nn.Conv2d(student, teacher, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(teacher, teacher, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(teacher, teacher, 1, bias=False),
        )
        # softplus(raw) + floor starts at `variance`
        above = variance - floor
        self.raw_variance = nn.Parameter(torch.full((teacher,), above + math.log(-math.expm1(-above))))
        self.floor = floor

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The negative logarithm of q without its constant, averaged over channels and positions, by row."""
        variance = (functional.softplus(self.raw_variance) + self.floor).reshape(1, -1, 1, 1)
        error = (self.mean(student) - teacher).square() / variance
        return 0.5 * (error + variance.log()).mean(dim=(1, 2, 3))


class VariationalInformation(Method):
    """Maximise a lower bound on the mutual information between the networks' maps.

    Ahn et al., "Variational information distillation for knowledge transfer", 2019:
    ``−log q(t | s) = Σ_c [log σ_c + (t_c − μ_c(s))² / (2 σ_c²)] + const`` with σ_c² = softplus(α_c) +
    1e-5. As in the comparison by Tian et al. (CRD, 2020): the mean over channels and positions in place of
    the sum and without the constant, weight 1, variances that start at 5, all levels of maps summed.
    """

    name = "vid"
    reference = "Ahn et al. 2019"
    needs = frozenset({"teacher", "maps"})
    term_names = ("task", "information")

    def __init__(
        self,
        context: Context,
        *,
        weight: float = 1.0,
        variance: float = 5.0,
        floor: float = 1e-5,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if not 0 < floor < variance < math.inf:
            raise PreceptorError(
                f"variance {variance} and floor {floor} came; expected a floor above 0 and a variance above the floor"
            )
        self.weight = weight
        self.levels = paired_levels(context)
        with seeded(context):
            self.regressors = nn.ModuleList(
                _GaussianRegressor(
                    context.student_shape.maps[student].shape[1],
                    teacher_shape(context).maps[teacher].shape[1],
                    variance,
                    floor,
                )
                for student, teacher in self.levels
            )

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the variational bound, summed over levels."""
        teacher_maps = teacher_of(step).maps
        total = torch.zeros_like(step.student.logits[:, 0])
        for regressor, (student, teacher) in zip(self.regressors, self.levels, strict=True):
            pair = same_size(
                full_precision(step.student.maps[student]), full_precision(teacher_maps[teacher])
            )
            total = total + regressor(*pair)
        return {"task": task_loss(step), "information": self.weight * row_mean(total, step.weights)}
