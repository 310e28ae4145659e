"""VkD: an orthogonal projection of the student's features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from preceptor.distill.losses.layers import seeded, teacher_shape
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


class Rotation(nn.Module):
    """A learnt linear map that turns vectors and stretches none; into fewer dimensions it drops some on the way.

    Its matrix is the Q of ``weight = Q R`` with a positive diagonal of R. PyTorch's own parametrisations build such a
    matrix from reflections or an exponential, which from 512 to 1,280 dimensions takes about 40 and 100 times as long.
    """

    def __init__(self, width: int, target: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(target, width)))

    @property
    def matrix(self) -> Tensor:
        """(target, width), its columns orthonormal, or its rows where these are fewer."""
        tall = len(self.weight) >= self.weight.shape[1]
        q, r = torch.linalg.qr(self.weight if tall else self.weight.T)
        q = q * torch.where(r.diagonal() < 0, -1, 1)  # one rotation a weight, whatever signs the solver likes
        return q if tall else q.T

    def forward(self, values: Tensor) -> Tensor:
        """(B, width) to (B, target)."""
        return functional.linear(values, self.matrix)


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
            self.projection = Rotation(width, teacher_shape(context).features.shape[1])

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the Huber loss between projected and standardised features."""
        student = self.projection(step.student.features)
        teacher = teacher_of(step).features.to(student.dtype)
        teacher = functional.layer_norm(teacher, teacher.shape[1:])
        rows = functional.smooth_l1_loss(student, teacher, reduction="none").mean(dim=1)
        return {"task": task_loss(step), "features": self.weight * row_mean(rows, step.weights)}
