"""Costs between the teacher's and the student's classes: Eq. (7) and the ablations of Tab. 8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from preceptor import ot
from preceptor.core import Outputs, PreceptorError
from preceptor.distill.losses.step import Context

COSTS = ("teacher", "constant", "random", "superclass", "shallow")
GIVEN = ("random", "shallow")  # costs that come as a matrix
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
    matrix: Any = None,
    superclasses: Mapping[str, str] | None = None,
) -> ClassCosts:
    """The costs of the given kind; see `Sinkhorn` for what the arguments mean."""
    if kind not in COSTS:
        raise PreceptorError(f"cost {kind!r} is unknown; expected one of {', '.join(COSTS)}")
    if matrix is not None and kind not in GIVEN:
        raise PreceptorError(f"matrix came, and cost {kind} does not look at it; use cost shallow or random")
    if superclasses is not None and kind != "superclass":
        raise PreceptorError(f"superclasses came, and cost {kind} does not look at it; use cost superclass")
    if centers != CENTERS[0] and kind != "teacher":
        raise PreceptorError(f"centers {centers!r} came, and cost {kind} has no centres; use cost teacher")
    if kind == "constant":
        costs = _by_label(context.teacher_classes, context.student_classes)
    elif kind == "superclass":
        costs = _by_superclass(context, superclasses)
    elif kind in GIVEN:
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
                "centers classifier needs the rows of the teacher's last layer and it has none; a module of your own "
                "needs an nn.Linear as attribute `classifier`"
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


def _given(context: Context, kind: str, matrix: Any) -> ClassCosts:
    shape = (len(context.teacher_classes), len(context.student_classes))
    if matrix is None:
        raise PreceptorError(
            f"cost {kind} needs matrix, the costs {shape} from another network's class centres"
        )
    try:
        costs = torch.as_tensor(matrix).detach().float().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise PreceptorError(
            f"matrix is a {type(matrix).__name__} that is no table of numbers; expected a tensor or array {shape}"
        ) from error
    if tuple(costs.shape) != shape:
        raise PreceptorError(
            f"matrix has shape {tuple(costs.shape)}; expected teacher classes x student classes {shape}"
        )
    if bool((costs.isnan() | costs.isneginf()).any()) or bool(costs.isposinf().all()):
        raise PreceptorError(
            "matrix has NaN, -inf or no finite cost; expected numbers, inf for a forbidden pair"
        )
    return ClassCosts(costs, None, None)


def _scaled(costs: ClassCosts, scale: str) -> ClassCosts:
    if scale not in SCALES:
        raise PreceptorError(f"scale_cost {scale!r} is unknown; expected one of {', '.join(SCALES)}")
    if scale == "none":
        return costs
    between = costs.between
    payable = between[between.isfinite()]  # forbidden pairs have no size
    spread = {"max": payable.max(), "mean": payable.mean(), "std": payable.std(correction=0)}[scale]
    if spread <= 0:
        raise PreceptorError(
            f"scale_cost {scale} divides by the cost's {scale}, which is 0 here; use scale_cost none"
        )
    teacher = None if costs.teacher is None else costs.teacher / spread
    student = None if costs.student is None else costs.student / spread
    return ClassCosts(between / spread, teacher, student)
