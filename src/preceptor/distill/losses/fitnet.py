"""FitNets: a hint from a middle layer of the teacher."""

from __future__ import annotations

from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.layers import RowBatchNorm, paired_levels, same_size, seeded, teacher_shape
from preceptor.distill.losses.method import Method, full_precision, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class FitNet(Method):
    """Regress a feature map of the teacher from one of the student.

    Romero et al., "FitNets: hints for thin deep nets", 2015: ``‖u_T(x) − r(u_S(x))‖²`` with a
    convolutional regressor r, averaged over channels and positions; maps of different size are averaged
    down to the smaller one. Here r is a 1 x 1 convolution with batch normalisation, without which the
    weight 100 (that of the comparison by Tian et al., CRD, 2020) makes training diverge where a network's
    activations are large. The paper trains the hint first and the rest after; here both terms are trained
    together. `level` counts the pairs of maps from shallow to deep; the default is the middle one, as in
    the paper.
    """

    name = "fitnet"
    reference = "Romero et al. 2015"
    needs = frozenset({"teacher", "maps"})
    term_names = ("task", "hint")

    def __init__(
        self, context: Context, *, weight: float = 100.0, level: int | None = None, **options: object
    ) -> None:
        super().__init__(context, **options)
        self.weight = weight
        levels = paired_levels(context)
        level = len(levels) // 2 if level is None else level
        if not 0 <= level < len(levels):
            raise PreceptorError(
                f"level {level} is out of range; the networks share {len(levels)} levels of maps"
            )
        self.student_level, self.teacher_level = levels[level]
        channels = context.student_shape.maps[self.student_level].shape[1]
        wanted = teacher_shape(context).maps[self.teacher_level].shape[1]
        with seeded(context):
            self.regressor = nn.Conv2d(channels, wanted, kernel_size=1, bias=False)
        self.norm = RowBatchNorm(wanted)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the squared error of the hint."""
        student = full_precision(step.student.maps[self.student_level])
        teacher = full_precision(teacher_of(step).maps[self.teacher_level])
        student, teacher = same_size(student, teacher)
        guess = self.norm(self.regressor(student), step.weights)
        rows = (guess - teacher).square().mean(dim=(1, 2, 3))
        return {"task": task_loss(step), "hint": self.weight * row_mean(rows, step.weights)}
