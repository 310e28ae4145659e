"""The frame of every method: what it needs, how it refuses, how rows are averaged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.distill.losses.geometry import or_one
from preceptor.distill.losses.processes import ALONE, Processes
from preceptor.distill.losses.step import Context, Step


class Method(nn.Module):
    """A way to distil: turns a step into weighted scalar terms whose sum is the loss.

    Parameters (regressors, critics) are trained with the student; parameters and buffers are saved with a
    checkpoint. Subclasses write `terms`; `forward` calls it in full precision with autocast switched off,
    because logarithms and distances of half-precision numbers are where losses go wrong.

    Several processes have the rows of a batch between them. A method whose terms are means over rows need not know.
    One that relates rows to each other says `relational`: its steps hold the rows of all processes, images and (unless
    it needs them) maps left out. One that only sums over the batch on its way asks `processes` for the total.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})
    term_names: ClassVar[tuple[str, ...]] = ("task",)
    relational: ClassVar[bool] = False
    uses_unlabelled: ClassVar[bool] = (
        False  # its own terms need no labels: label -1 and a target of 0 are fine
    )
    processes: Processes = ALONE

    def __init__(self, context: Context, **options: Any) -> None:
        super().__init__()
        if options:
            raise PreceptorError(f"method {self.name} has no option {sorted(options)}; see docs/methods.md")
        self.check(context)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """The weighted terms by name; "task" is the cross-entropy with the labels."""
        step = replace(step, student=_full_output(step.student), teacher=_full_output(step.teacher))
        with torch.autocast(step.student.logits.device.type, enabled=False):
            return self.terms(step)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """The terms of one step; logits and features are float32 or wider, maps are as they came."""
        raise NotImplementedError

    def expand(self, images: Tensor) -> Tensor:
        """The batch that both networks are to see; methods with extra views add rows behind it."""
        return images

    @classmethod
    def check(cls, context: Context) -> None:
        """Raise a `PreceptorError` that explains which need of the method is not met."""
        if "teacher" in cls.needs and context.teacher_shape is None:
            raise PreceptorError(
                f"method {cls.name} needs a teacher and none was given; pass one or use method none"
            )
        if "same-classes" in cls.needs:
            _check_same_classes(cls.name, context)
        if "maps" in cls.needs:
            _check_maps(cls.name, context)


def _check_same_classes(name: str, context: Context) -> None:
    student, teacher = context.student_classes, context.teacher_classes
    if sorted(student) == sorted(teacher):
        return
    only_student = sorted(set(student) - set(teacher))
    only_teacher = sorted(set(teacher) - set(student))
    raise PreceptorError(
        f"method {name} compares predictions class by class and needs a teacher with the student's classes; "
        f"only the student has {_listed(only_student)}, only the teacher has {_listed(only_teacher)}: "
        "use a method without this need, such as sinkhorn or probe-kd"
    )


def _check_maps(name: str, context: Context) -> None:
    assert context.teacher_shape is not None
    for side, shape in (("student", context.student_shape), ("teacher", context.teacher_shape)):
        if not shape.maps:
            raise PreceptorError(
                f"method {name} compares feature maps and the {side} gives none; use a {side} that has them "
                "or a method without this need, such as sinkhorn or rkd"
            )


def _listed(names: list[str], limit: int = 8) -> str:
    shown = ", ".join(names[:limit]) or "none"
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def full_precision(values: Tensor) -> Tensor:
    """Half-precision numbers as float32; wider ones as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _full_output(output: ModelOutput | None) -> Any:
    if output is None:
        return None
    return replace(output, features=full_precision(output.features), logits=full_precision(output.logits))


def row_mean(values: Tensor, weights: Tensor) -> Tensor:
    """The mean over rows with weights; 0 where no row counts."""
    weights = weights.to(values.dtype)
    return (values * weights).sum() / or_one(weights.sum())


def up_to_one(ratio: float | Tensor) -> float | Tensor:
    """The smaller of the ratio and 1, without asking a tensor for its value."""
    return ratio.clamp(max=1.0) if isinstance(ratio, Tensor) else min(1.0, ratio)


def task_loss(step: Step) -> Tensor:
    """Cross-entropy with the label distribution, averaged over the rows that count."""
    logits = step.student.logits[: len(step.targets)]
    rows = -(step.targets.to(logits.dtype) * logits.log_softmax(dim=1)).sum(dim=1)
    return row_mean(rows, step.weights)


def teacher_of(step: Step) -> ModelOutput:
    """The teacher's outputs, without a path for gradients."""
    if step.teacher is None:
        raise PreceptorError("this step carries no teacher outputs; a method with a teacher cannot run on it")
    teacher = step.teacher
    return ModelOutput(
        tuple(m.detach() for m in teacher.maps), teacher.features.detach(), teacher.logits.detach()
    )


def class_order(context: Context) -> Tensor:
    """Positions of the student's classes among the teacher's, by name: ``teacher_logits[:, order]``."""
    places = {name: place for place, name in enumerate(context.teacher_classes)}
    return torch.tensor([places[name] for name in context.student_classes])
