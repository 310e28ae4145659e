"""Knowledge distillation from predictions (Hinton et al. 2015), and born-again networks."""

from __future__ import annotations

from torch import Tensor

from preceptor.distill.losses.method import Method, class_order, row_mean, task_loss, teacher_of
from preceptor.distill.losses.step import Context, Step


def kl_rows(teacher_logits: Tensor, student_logits: Tensor, temperature: float) -> Tensor:
    """KL(ρ_τ(f_T) ‖ ρ_τ(f_S)) of each row (B,), times τ² so that gradients keep their size."""
    log_teacher = (teacher_logits / temperature).log_softmax(dim=1)
    log_student = (student_logits / temperature).log_softmax(dim=1)
    # Where the teacher's probability underflows to 0 its finite logarithm is multiplied away.
    return (log_teacher.exp() * (log_teacher - log_student)).sum(dim=1) * temperature**2


def standardized(logits: Tensor) -> Tensor:
    """Logits of each row with mean 0 and deviation 1 (Sun et al. 2024)."""
    centered = logits - logits.mean(dim=1, keepdim=True)
    return centered / (centered.square().mean(dim=1, keepdim=True) + 1e-7).sqrt()


class KnowledgeDistillation(Method):
    """Match the teacher's softened class probabilities.

    Eq. (2) of the paper, Hinton et al., "Distilling the knowledge in a neural network", 2015:
    ``task_weight · ℓ(y, f_S) + weight · τ² · KL(ρ_τ(f_T) ‖ ρ_τ(f_S))``. Hinton et al. ask for a small
    weight on the labels; the defaults 0.1 and 0.9 at τ = 4 are those of the comparison by Tian et al.
    (CRD, 2020). ``standardize`` scales both sides' logits to unit deviation first (Sun et al., "Logit
    standardization", 2024). The teacher's classes are put in the student's order by name.
    """

    name = "kd"
    uses_unlabelled = True
    reference = "Hinton et al. 2015"
    needs = frozenset({"teacher", "same-classes"})
    term_names = ("task", "kd")
    order: Tensor

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        weight: float = 0.9,
        task_weight: float = 0.1,
        standardize: bool = False,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.weight, self.task_weight = temperature, weight, task_weight
        self.standardize = standardize
        self.register_buffer("order", class_order(context), persistent=False)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the divergence between softened predictions."""
        teacher = teacher_of(step).logits.index_select(1, self.order)
        student = step.student.logits
        if self.standardize:
            teacher, student = standardized(teacher), standardized(student)
        rows = kl_rows(teacher, student, self.temperature)
        return {"task": self.task_weight * task_loss(step), "kd": self.weight * row_mean(rows, step.weights)}


class BornAgain(KnowledgeDistillation):
    """Learn from an earlier generation of the same architecture.

    Furlanello et al., "Born-again neural networks", 2018: the label loss plus the cross-entropy with the
    previous generation's predictions, neither softened nor weighted; here it is their divergence, which is
    less by a constant. The schedule of generations calls this method.
    """

    name = "ban"
    uses_unlabelled = False  # a stage of a schedule
    reference = "Furlanello et al. 2018"

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 1.0,
        weight: float = 1.0,
        task_weight: float = 1.0,
        standardize: bool = False,
        **options: object,
    ) -> None:
        super().__init__(
            context,
            temperature=temperature,
            weight=weight,
            task_weight=task_weight,
            standardize=standardize,
            **options,
        )
