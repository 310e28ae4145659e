"""VkD: an orthogonal projection of the student's features."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import orthogonal

from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class OrthogonalProjection(Method):
    """Regress the teacher's standardised features through a projection that can only rotate.

    Miles et al., "VkD: improving knowledge distillation using orthogonal projections", 2024:
    ``ℓ(y, f_S) + weight · h(P z_S − norm(z_T))`` with Pᵀ P = I (P P ᵀ = I where the student is wider),
    the Huber loss h and the teacher's features at mean 0 and deviation 1 within each sample, the paper's
    normalisation for discriminative tasks. Because P cannot stretch, the student itself has to take the
    teacher's geometry. It needs no common classes. The weight 1 is ours.
    """

    name = "vkd"
    reference = "Miles et al. 2024"
    term_names = ("task", "features")

    def __init__(self, context: Context, *, weight: float = 1.0, **options: object) -> None:
        super().__init__(context, **options)
        self.weight = weight
        width = context.student_shape.features.shape[1]
        with seeded(context):
            self.projection = orthogonal(
                nn.Linear(width, teacher_shape(context).features.shape[1], bias=False)
            )

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the Huber loss between projected and standardised features."""
        student = self.projection(step.student.features)
        teacher = teacher_of(step).features.to(student.dtype)
        teacher = functional.layer_norm(teacher, teacher.shape[1:])
        rows = functional.smooth_l1_loss(student, teacher, reduction="none").mean(dim=1)
        return {"task": task_loss(step), "features": self.weight * row_mean(rows, step.weights)}
