"""Costs between the teacher's and the student's classes: Eq. (7) and the ablations of Tab. 8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from preceptor import ot
from preceptor.core import Outputs, PreceptorError
from preceptor.distill.losses.step import Context

COSTS = ("teacher", "constant", "random", "superclass", "shallow")
CENTERS = ("classifier", "data", "predicted")
SCALES = ("none", "max", "mean", "std")


@dataclass(frozen=True)
class ClassCosts:
    """M, and for the debiased value the costs within each class set (None for a given matrix)."""

    between: Tensor  # (C_T, C_S)
    teacher: Tensor | None  # (C_T, C_T)
    student: Tensor | None  # (C_S, C_S)


def class_costs(
    context: Context,
    *,
    kind: str = "teacher",
    centers: str = "classifier",
    normalize: bool = True,
    center: bool = False,
    scale: str = "none",
    matrix: Tensor | None = None,
    superclasses: Mapping[str, str] | None = None,
) -> ClassCosts:
    """The costs of the given kind; see `Sinkhorn` for what the arguments mean."""
    if kind not in COSTS:
        raise PreceptorError(f"cost {kind!r} is unknown; expected one of {', '.join(COSTS)}")
    if kind == "constant":
        costs = _by_label(context.teacher_classes, context.student_classes)
    elif kind == "superclass":
        costs = _by_superclass(context, superclasses)
    elif kind in ("random", "shallow"):
        costs = _given(context, kind, matrix)
    else:
        teacher, student = teacher_centers(context, centers), student_centers(context)
        # A row of zeros stays at the origin, as in the ranking: such a teacher says nothing, and a training shows it.
        costs = ClassCosts(
            *(ot.cost_matrix(*pair, normalize, center, zero_rows="origin")
              for pair in ((teacher, student), (teacher, teacher), (student, student)))
        )  # fmt: skip
    return _scaled(costs, scale)


def student_centers(context: Context) -> Tensor:
    """Means of the teacher's features over each of the student's classes, Eq. (6): (C_S, d)."""
    outputs = _train_outputs(context)
    features = torch.as_tensor(outputs.features).float()
    return ot.class_centers(features, torch.as_tensor(outputs.labels), len(context.student_classes))


def teacher_centers(context: Context, kind: str) -> Tensor:
    """The teacher's class centres in its feature space: (C_T, d)."""
    if kind == "classifier":  # Eq. (8)
        if context.teacher_classifier is None:
            raise PreceptorError(
                "centers classifier needs the rows of the teacher's last layer and it has none"
            )
        return ot.unit_rows(context.teacher_classifier.detach().float().cpu(), zero_rows="origin")
    if kind == "data":
        if context.teacher_centers is None:
            raise PreceptorError(
                "centers data needs the teacher's stored class centres and it has none; add them to the zoo "
                "or use centers classifier"
            )
        return context.teacher_centers.detach().float().cpu()
    if kind == "predicted":
        outputs = _train_outputs(context)
        if outputs.logits is None:
            raise PreceptorError("centers predicted needs the teacher's logits and it has none")
        shares = torch.as_tensor(outputs.logits).float().softmax(dim=1)  # (N, C_T)
        mass = shares.sum(dim=0).clamp_min(torch.finfo(shares.dtype).tiny)
        return (shares / mass).T @ torch.as_tensor(outputs.features).float()
    raise PreceptorError(f"centers {kind!r} is unknown; expected one of {', '.join(CENTERS)}")


def _train_outputs(context: Context) -> Outputs:
    if context.train_outputs is None:
        raise PreceptorError(
            "class centres need the teacher's outputs over the training set; extract them as train_outputs"
        )
    return context.train_outputs


def _by_label(teacher: tuple[str, ...], student: tuple[str, ...]) -> ClassCosts:
    def differs(first: tuple[str, ...], second: tuple[str, ...]) -> Tensor:
        return torch.tensor([[float(one != other) for other in second] for one in first])

    return ClassCosts(differs(teacher, student), differs(teacher, teacher), differs(student, student))


def _by_superclass(context: Context, superclasses: Mapping[str, str] | None) -> ClassCosts:
    if superclasses is None:
        raise PreceptorError("cost superclass needs superclasses, a mapping from class to superclass")
    missing = sorted({*context.teacher_classes, *context.student_classes} - set(superclasses))
    if missing:
        raise PreceptorError(f"superclasses says nothing about {', '.join(missing[:8])}; name every class")
    teacher = tuple(superclasses[name] for name in context.teacher_classes)
    return _by_label(teacher, tuple(superclasses[name] for name in context.student_classes))


def _given(context: Context, kind: str, matrix: Tensor | None) -> ClassCosts:
    shape = (len(context.teacher_classes), len(context.student_classes))
    if matrix is None:
        raise PreceptorError(
            f"cost {kind} needs matrix, the costs {shape} from another network's class centres"
        )
    if tuple(matrix.shape) != shape:
        raise PreceptorError(
            f"matrix has shape {tuple(matrix.shape)}; expected teacher classes x student classes {shape}"
        )
    return ClassCosts(matrix.detach().float().clone(), None, None)


def _scaled(costs: ClassCosts, scale: str) -> ClassCosts:
    if scale not in SCALES:
        raise PreceptorError(f"scale_cost {scale!r} is unknown; expected one of {', '.join(SCALES)}")
    if scale == "none":
        return costs
    between = costs.between
    spread = {"max": between.max(), "mean": between.mean(), "std": between.std(correction=0)}[scale]
    if spread <= 0:
        raise PreceptorError(
            f"scale_cost {scale} divides by the cost's {scale}, which is 0 here; use scale_cost none"
        )
    teacher = None if costs.teacher is None else costs.teacher / spread
    student = None if costs.student is None else costs.student / spread
    return ClassCosts(between / spread, teacher, student)
