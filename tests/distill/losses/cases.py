"""Small steps and contexts with every ingredient a method may ask for."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import METHODS, Context, Method, Step

NAMES = sorted(METHODS)
SAME = [name for name in NAMES if "same-classes" in METHODS[name].needs]
TAUGHT = [name for name in NAMES if "teacher" in METHODS[name].needs]
MAPS = [name for name in NAMES if "maps" in METHODS[name].needs]
# The transport solver decides on the host when to stop; mgd solves its assignment there.
WAITING = {"sinkhorn", "sinkhorn+probe", "wcord", "mgd"}


STUDENT_CLASSES = ("cat", "dog", "owl")
SAME_CLASSES = ("owl", "cat", "dog")
OTHER_CLASSES = ("car", "owl", "ship", "tram")
STUDENT_SIZES = ((3, 4), (4, 2))  # channels, height and width of each map
TEACHER_SIZES = ((6, 8), (5, 4), (8, 2))
STUDENT_WIDTH, TEACHER_WIDTH = 4, 5


def network_output(generator: torch.Generator, rows: int, sizes, width: int, classes: int) -> ModelOutput:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    maps = tuple(draw(rows, channels, size, size) for channels, size in sizes)
    return ModelOutput(maps, draw(rows, width), 2 * draw(rows, classes))


def leaves(step: Step) -> list[Tensor]:
    """The student's outputs, as inputs to take gradients at."""
    return [x.requires_grad_() for x in (step.student.logits, step.student.features, *step.student.maps)]


def make_context(same: bool = True, maps: bool = True, seed: int = 0, teacher: bool = True) -> Context:
    generator = torch.Generator().manual_seed(100)
    classes = SAME_CLASSES if same else OTHER_CLASSES
    own = network_output(generator, 2, STUDENT_SIZES if maps else (), STUDENT_WIDTH, len(STUDENT_CLASSES))
    theirs = network_output(generator, 2, TEACHER_SIZES if maps else (), TEACHER_WIDTH, len(classes))
    weight = torch.randn(len(classes), TEACHER_WIDTH, generator=generator)
    labels = np.arange(24) % 3
    features = np.random.default_rng(3).normal(size=(24, TEACHER_WIDTH)) + np.eye(3, TEACHER_WIDTH)[labels]
    outputs = Outputs(features, features @ weight.double().numpy().T, labels)
    return Context(
        student_classes=STUDENT_CLASSES,
        student_shape=own,
        teacher_classes=classes if teacher else (),
        teacher_shape=theirs if teacher else None,
        teacher_classifier=weight if teacher else None,
        teacher_centers=torch.randn(len(classes), TEACHER_WIDTH, generator=generator) if teacher else None,
        train_outputs=outputs if teacher else None,
        num_train=24,
        seed=seed,
    )


def views(name: str) -> int:
    return 4 if "views" in METHODS[name].needs else 1


def make_step(name: str, context: Context, rows: int = 6, seed: int = 0, progress: float = 0.5) -> Step:
    generator = torch.Generator().manual_seed(seed)
    total = rows * views(name)
    maps = bool(context.student_shape.maps)
    own = network_output(generator, total, STUDENT_SIZES if maps else (), STUDENT_WIDTH, len(STUDENT_CLASSES))
    theirs = None
    if context.teacher_shape is not None:
        sizes = TEACHER_SIZES if context.teacher_shape.maps else ()
        theirs = network_output(generator, total, sizes, TEACHER_WIDTH, len(context.teacher_classes))
    labels = torch.arange(rows) % 3
    targets = 0.9 * torch.nn.functional.one_hot(labels, 3).double() + 0.1 / 3
    images = torch.rand(total, 3, 8, 8, generator=generator, dtype=torch.float64)
    return Step(images, labels, targets, torch.ones(rows), torch.arange(rows), own, theirs, progress)


def build(name: str, context: Context, **options: object) -> Method:
    """The method in float64, with a solver tolerance below what tests compare."""
    if name.startswith("sinkhorn"):
        options = {"tolerance": 1e-10, "max_iterations": 20000, **options}
    if name == "wcord":
        options = {"tolerance": 1e-10, "max_iterations": 20000, **options}
    return METHODS[name](context, **options).double()


def loss(method: Method, step: Step) -> Tensor:
    """The sum of the terms, on a copy: memories and counters of `method` stay as they are."""
    return torch.stack(list(copy.deepcopy(method)(step).values())).sum()


def rows_of(output: ModelOutput, index: Tensor) -> ModelOutput:
    return ModelOutput(tuple(m[index] for m in output.maps), output.features[index], output.logits[index])


def with_padding(name: str, step: Step, extra: int = 2) -> Step:
    """The same step with `extra` padding rows of garbage behind each view."""
    count = views(name)
    generator = torch.Generator().manual_seed(77)

    def padded(values: Tensor, parts: int) -> Tensor:
        junk = 3 * torch.randn(parts * extra, *values.shape[1:], generator=generator, dtype=torch.float64)
        pieces = zip(values.chunk(parts), junk.to(values.dtype).chunk(parts), strict=True)
        return torch.cat([piece for pair in pieces for piece in pair])

    def padded_output(output: ModelOutput | None) -> ModelOutput | None:
        if output is None:
            return None
        maps = tuple(padded(m, count) for m in output.maps)
        return ModelOutput(maps, padded(output.features, count), padded(output.logits, count))

    student, teacher = padded_output(step.student), padded_output(step.teacher)
    assert student is not None
    return replace(
        step,
        images=padded(step.images, count),
        labels=torch.cat([step.labels, torch.full((extra,), 2)]),
        targets=torch.cat([step.targets, torch.full((extra, 3), 1 / 3, dtype=torch.float64)]),
        weights=torch.cat([step.weights, torch.zeros(extra)]),
        indices=torch.cat([step.indices, torch.zeros(extra, dtype=torch.long)]),
        student=student,
        teacher=teacher,
    )


def cast(step: Step, dtype: torch.dtype) -> Step:
    """The step with outputs of another precision."""

    def output(out: ModelOutput) -> ModelOutput:
        return ModelOutput(tuple(m.to(dtype) for m in out.maps), out.features.to(dtype), out.logits.to(dtype))

    assert step.teacher is not None
    return replace(
        step, student=output(step.student), teacher=output(step.teacher), targets=step.targets.float()
    )
