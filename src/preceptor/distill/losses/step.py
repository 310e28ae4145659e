"""What a method sees: once before training (`Context`) and at every step (`Step`)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from preceptor.core import ModelOutput, Outputs


@dataclass(frozen=True)
class Step:
    """One batch after both networks have seen it.

    A method that expands the batch (`Method.expand`) finds V·B rows, view after view, in `images`, `student`
    and `teacher`; the first B of them are the batch as it came. The other fields may keep their B rows.
    """

    images: Tensor  # (B, …) the augmented view that both networks saw, in the student's normalisation
    labels: Tensor  # (B,); -1 for a row without a label, whose target is 0
    targets: Tensor  # (B, C_S) label distribution: one-hot, smoothed or mixed up
    weights: Tensor  # (B,) 1, or 0 for the padding rows at an epoch's ragged end
    indices: Tensor  # (B,) position in the training set
    student: ModelOutput
    teacher: ModelOutput | None
    progress: float | Tensor  # 0 … 1 through training; a tensor where the step is a CUDA graph


@dataclass(frozen=True)
class Context:
    """What a method may know before training. Shapes come from a dry batch of both networks."""

    student_classes: tuple[str, ...]
    student_shape: ModelOutput
    teacher_classes: tuple[str, ...]
    teacher_shape: ModelOutput | None
    teacher_classifier: Tensor | None  # (C_T, d)
    teacher_centers: Tensor | None  # (C_T, d), class means over the teacher's own training data
    train_outputs: Outputs | None  # the teacher's clean outputs over the student's training set
    num_train: int
    seed: int
