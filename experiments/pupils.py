"""Who trains in a pack: students, their teachers, and what they share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from experiments.images import Images
from experiments.passes import normalised
from experiments.schedule import Schedule
from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import Context, Method


@dataclass(eq=False)
class Tutor:
    """A teacher at work in a pack, and what methods are told about it."""

    network: nn.Module
    classes: tuple[str, ...]
    centers: Tensor  # (C_T, d) means of its features over its own training set
    outputs: Outputs  # its clean outputs over the students' training set


@dataclass(eq=False)
class Student:
    """One training of a pack."""

    network: nn.Module
    method: type[Method]
    options: dict[str, Any] = field(default_factory=dict)
    tutor: Tutor | None = None
    rate_scale: float = 1.0  # fine-tuning starts from a smaller rate
    seed: int = 0  # of what its method draws
    accuracy: float = float("nan")
    final_loss: float = float("nan")


@dataclass(frozen=True)
class Scene:
    """What all students of a pack share."""

    data: Images
    classes: tuple[str, ...]
    mean: Tensor  # (C,)
    std: Tensor  # (C,)
    schedule: Schedule
    seed: int  # of the order of images and their views
    compiled: bool = False
    bfloat16: bool = False  # in training, on the CPU; on a GPU it is always so


def context_of(scene: Scene, student: Student) -> Context:
    """What the student's method may know before training."""
    sample = normalised(scene.data.pixels[:2], scene.mean, scene.std)
    was_training = student.network.training
    with torch.no_grad():
        shape = student.network.eval().outputs(sample)
        taught = None if student.tutor is None else student.tutor.network.outputs(sample)
    student.network.train(was_training)
    context = Context(
        student_classes=scene.classes, student_shape=shape, teacher_classes=(), teacher_shape=None,
        teacher_classifier=None, teacher_centers=None, train_outputs=None,
        num_train=len(scene.data), seed=student.seed,
    )  # fmt: skip
    if student.tutor is None:
        return context
    head = student.tutor.network.classifier
    return replace(
        context, teacher_classes=student.tutor.classes, teacher_shape=taught,
        teacher_classifier=head.weight.detach().float().cpu(),
        teacher_centers=student.tutor.centers, train_outputs=student.tutor.outputs,
    )  # fmt: skip


LessonKey = tuple[Tutor | None, type | None]
Lesson = tuple[Tensor, ModelOutput | None]


def looks_at_maps(method: Method) -> bool:
    """Whether a loss may take gradients to feature maps; the branches of SFTN's teacher do, without a need."""
    return "maps" in method.needs or hasattr(method, "branches")


def lesson_key(student: Student, method: Method) -> LessonKey:
    """Students with one key see the same images and the same answers of one teacher."""
    return student.tutor, None if type(method).expand is Method.expand else type(method)
