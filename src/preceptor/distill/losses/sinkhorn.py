"""The paper's method: the Sinkhorn distance between predictions over different class sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from preceptor import ot
from preceptor.core import PreceptorError
from preceptor.distill.losses.class_costs import ClassCosts, class_costs
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of, up_to_one
from preceptor.distill.losses.step import Context, Step

WEIGHT_SCHEDULES = ("constant", "linear-decay", "cosine-decay", "warmup")
WARMUP = 0.1  # of training
VALUES = ("entropic", "divergence")


def schedule_factor(schedule: str, progress: float | Tensor, warmup: float = WARMUP) -> float | Tensor:
    """What the weight is multiplied with at `progress` (0 … 1) through training.

    A progress that is a tensor without dimensions gives one: a loop whose step is a CUDA graph keeps it there.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "linear-decay":
        return 1.0 - progress
    if schedule == "cosine-decay":
        turn = math.pi * progress
        return 0.5 * (1.0 + (turn.cos() if isinstance(turn, Tensor) else math.cos(turn)))
    if schedule == "warmup":
        return up_to_one(progress / warmup)
    raise PreceptorError(
        f"weight schedule {schedule!r} is unknown; expected one of {', '.join(WEIGHT_SCHEDULES)}"
    )


def _check_warmup(schedule: str, warmup: float) -> None:
    if not 0 < warmup <= 1:
        raise PreceptorError(f"warmup is {warmup}; expected a share of training above 0, 1 at most")
    if warmup != WARMUP and schedule != "warmup":
        raise PreceptorError(
            f"warmup came, and schedule {schedule} does not look at it; use schedule warmup or leave it out"
        )


class Sinkhorn(Method):
    """Transport the teacher's class probabilities onto the student's classes.

    Eq. (11): ``ℓ(y, f_S(x)) + weight · S_ε(ρ_τ(f_T(x)), ρ_τ(f_S(x)))``, S_ε of Eq. (5) with the cost M of
    Eq. (7). The defaults are not the paper's for CIFAR-100 (weight 10, temperature 3, constant, not centred; `--recipe
    paper` has them). The weight falls to nothing: with a constant one the gain can be lost where teacher and student
    share part of their classes. The term is softer and stronger: that changes little where there are many labels and
    gains much where there are few. The centres are centred, which helps there, too (docs/choosing.md). The gradient
    with respect to the student's logits is (β − ⟨β, p_S⟩) p_S / τ: the paper leaves out 1/τ (docs/notation.md).

    Args:
        context: What is known before training.
        weight: λ.
        temperature: τ of both softmaxes.
        epsilon: Entropic regularisation ε.
        cost: Where M comes from: "teacher" (Eq. 7) or an ablation of Tab. 8: "constant" (0 for the class
            of the same name, 1 otherwise), "random" or "shallow" (pass `matrix`, computed with a randomly
            initialised or a shallower network), "superclass" (pass `superclasses`).
        centers: The teacher's class centres: "classifier" (Eq. 8), "data" (stored class means) or
            "predicted" (means of the student's training data weighted with the teacher's class
            probabilities).
        normalize: Put the centres of both sides on the unit sphere; for cost "teacher". The paper does so with the
            teacher's alone (docs/notation.md).
        center: Take the mean centre off each side first; for cost "teacher".
        value: "entropic" (Eq. 5) or "divergence" (debiased, zero where both sides agree).
        schedule: How the weight follows the progress of training.
        warmup: The share of training after which the "warmup" schedule has reached the full weight.
        scale_cost: Divide M by its "max", "mean" or "std" ("none": as it is), so that weight and ε do not
            depend on how far apart the centres lie.
        matrix: M itself (C_T, C_S), a tensor, an array or lists, for cost "random" and "shallow".
        superclasses: Class name to superclass, for cost "superclass"; it must cover both class sets.
        tolerance: L1 marginal error at which the iterations stop.
        max_iterations: Upper limit of the iterations.
    """

    name = "sinkhorn"
    uses_unlabelled = True
    reference = "Lu et al. 2022"
    term_names: ClassVar[tuple[str, ...]] = ("task", "sinkhorn")
    cost: Tensor
    teacher_cost: Tensor | None
    student_cost: Tensor | None

    def __init__(
        self,
        context: Context,
        *,
        weight: float = 100.0,
        temperature: float = 6.0,
        epsilon: float = 0.1,
        cost: str = "teacher",
        centers: str = "classifier",
        normalize: bool = True,
        center: bool = True,
        value: str = "entropic",
        schedule: str = "linear-decay",
        warmup: float = WARMUP,
        scale_cost: str = "none",
        matrix: Any = None,
        superclasses: Mapping[str, str] | None = None,
        tolerance: float = 1e-4,
        max_iterations: int = 1000,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        if value not in VALUES:
            raise PreceptorError(f"value {value!r} is unknown; expected one of {', '.join(VALUES)}")
        schedule_factor(schedule, 0.0)
        _check_warmup(schedule, warmup)
        for name, setting in {"temperature": temperature, "epsilon": epsilon, "tolerance": tolerance}.items():
            if not (setting > 0 and math.isfinite(setting)):
                raise PreceptorError(f"{name} is {setting}; expected a finite number above 0")
        self.weight, self.temperature, self.epsilon, self.value = weight, temperature, epsilon, value
        self.schedule, self.warmup = schedule, warmup
        self.tolerance, self.max_iterations = tolerance, max_iterations
        costs = class_costs(
            context, kind=cost, centers=centers, normalize=normalize, center=center, scale=scale_cost,
            matrix=matrix, superclasses=superclasses,
        )  # fmt: skip
        self._keep(costs)

    def _keep(self, costs: ClassCosts) -> None:
        if self.value == "divergence" and costs.teacher is None:
            raise PreceptorError(
                "value divergence needs costs within each class set, not a given matrix; use value entropic"
            )
        debiased = self.value == "divergence"
        self.register_buffer("cost", costs.between)
        self.register_buffer("teacher_cost", costs.teacher if debiased else None)
        self.register_buffer("student_cost", costs.student if debiased else None)

    def transport(self, teacher_logits: Tensor, student_logits: Tensor) -> Tensor:
        """S_ε of each row: (B,); NaN where a prediction is, which the solver would refuse for all rows."""
        dtype = torch.promote_types(teacher_logits.dtype, student_logits.dtype)
        teacher = (teacher_logits.to(dtype) / self.temperature).softmax(dim=1)  # (B, C_T)
        student = (student_logits.to(dtype) / self.temperature).softmax(dim=1)  # (B, C_S)
        broken = teacher.isnan().any(dim=1) | student.isnan().any(dim=1)
        teacher = torch.where(broken[:, None], 1 / teacher.shape[1], teacher)
        student = torch.where(broken[:, None], 1 / student.shape[1], student)
        return self._values(teacher, student).masked_fill(broken, torch.nan)

    def _values(self, teacher: Tensor, student: Tensor) -> Tensor:
        cost = self.cost.to(student.dtype)
        if self.teacher_cost is None or self.student_cost is None:
            return ot.sinkhorn_distance(
                teacher, student, cost, self.epsilon, self.tolerance, self.max_iterations
            )
        return ot.sinkhorn_divergence(
            teacher,
            student,
            cost,
            self.teacher_cost.to(cost.dtype),
            self.student_cost.to(cost.dtype),
            self.epsilon,
            self.tolerance,
            self.max_iterations,
        )

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the transport term, Eq. (11)."""
        rows = self.transport(teacher_of(step).logits, step.student.logits)
        weight = self.weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {"task": task_loss(step), "sinkhorn": weight * row_mean(rows, step.weights)}
