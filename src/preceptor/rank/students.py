"""The two metrics of the paper that need trained students, for study: what they cost, and their training.

``sinkhorn-exact`` is Eq. (24) as it stands: the Sinkhorn distance between a teacher's predictions and those
of a student distilled from it, so one training a teacher. ``sinkhorn-single`` (Approximation I) takes one
plain student for all teachers. ``sinkhorn`` (Approximation II) puts a linear probe in the student's place.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.distill.inputs import input_shape
from preceptor.distill.recipe import Recipe, lengthened, resolve_recipe
from preceptor.distill.train import train
from preceptor.files import write_atomically
from preceptor.models import build
from preceptor.rank.journal import digest, teacher_hash
from preceptor.wording import counted
from preceptor.zoo import Preprocessing, Teacher

SINGLE, EXACT = "sinkhorn-single", "sinkhorn-exact"
STUDENT_METRICS = (SINGLE, EXACT)
BATCH = 256
LOGITS_VERSION = 2  # raise it when `_train` asks the student otherwise: kept logits are then left alone


@dataclass(frozen=True)
class Student:
    """The student that these metrics train: its architecture and how it is trained."""

    arch: str
    recipe: Recipe | str = "small"

    def describe(self) -> dict[str, Any]:
        """What a training of it depends on beside task, teacher and seed."""
        return {"arch": self.arch, "recipe": resolve_recipe(self.recipe).to_json()}


def costs(metrics: tuple[str, ...], student: Student | None, task: Task, teachers: int) -> list[str]:
    """What the trainings will cost, a sentence for each metric that needs any; raises without a student."""
    asked = [metric for metric in STUDENT_METRICS if metric in metrics]
    if not asked:
        return []
    if student is None:
        raise PreceptorError(
            f"{asked[0]} trains students; name their architecture with --student, as wrn-16-1"
        )
    recipe = resolve_recipe(student.recipe)
    shape = input_shape(task.train, task.kind, recipe.image_size)
    # A name or a size that will not do is told here, once.
    build(student.arch, len(task.classes), shape, seed=0)  # type: ignore[arg-type]
    epochs = lengthened(recipe, len(task.train)).epochs
    sentences = []
    for metric in asked:
        runs = 1 if metric == SINGLE else teachers
        what = (
            "one plain student"
            if metric == SINGLE
            else f"one distilled student for each of {counted(teachers, 'teacher')}"
        )
        passes = runs * epochs * len(task.train)
        sentences.append(
            f"{metric} trains {what}: {student.arch}, {counted(epochs, 'epoch')} each, {passes:,} passes of a "
            "sample forward and back in all; what is finished is kept"
        )
    return sentences


def student_logits(
    task: Task, student: Student, *, cache: str, device: str, seed: int, teacher: Teacher | None = None
) -> np.ndarray:
    """Logits (N, C_S) of the student on its training set, trained if that has not been done.

    Args:
        task: what the student learns.
        student: what it is.
        cache: folder under which runs are kept; an interrupted training goes on.
        device: where it trains.
        seed: of its training.
        teacher: whom it learns from by the ``sinkhorn`` method; None for the plain student.
    """
    source = None if teacher is None else teacher_hash(teacher.card)
    asked = {"task": task.fingerprint, "seed": seed, "teacher": source, "version": LOGITS_VERSION}
    key = digest({**asked, **student.describe()})
    folder = Path(cache) / "students" / key[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # several workers may want the same plain student
        folder.mkdir(exist_ok=True)
        known = folder / "logits.npy"
        if not known.exists():
            packed = io.BytesIO()
            np.save(packed, _train(task, student, folder / "run", device, seed, teacher))
            write_atomically(known, packed.getvalue())
        return np.load(known, allow_pickle=False)


def _train(
    task: Task, student: Student, folder: Path, device: str, seed: int, teacher: Teacher | None
) -> np.ndarray:
    result = train(
        task,
        student=student.arch,
        method="none" if teacher is None else "sinkhorn",
        teacher=teacher,
        recipe=student.recipe,
        out=folder,
        seed=seed,
        resume=folder.exists(),
        device=device,
        progress=False,
    )
    preprocessing = Preprocessing.for_size(
        result.config["input_shape"], result.config["mean"], result.config["std"]
    )
    parts = []
    model = result.model.eval()
    with torch.no_grad():
        for start in range(0, len(task.train), BATCH):
            rows = np.arange(start, min(start + BATCH, len(task.train)))
            inputs = preprocessing.apply(task.train.load(rows)).to(next(model.parameters()).device)
            parts.append(model(inputs).float().cpu().numpy())
    return np.concatenate(parts)
