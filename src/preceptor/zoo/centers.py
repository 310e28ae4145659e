"""Class centres of a teacher out of data: the mean features of each of its own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.ot import class_centers
from preceptor.wording import listed
from preceptor.zoo.features import extract
from preceptor.zoo.teacher import Teacher

if TYPE_CHECKING:
    from preceptor.data import Task


def centers_from_task(teacher: Teacher, task: Task, device: str = "cpu") -> Tensor:
    """Centres ``(C_T, d)`` from a task's training samples; classes are matched by name.

    Every class of the teacher must be in the task; classes it does not know are left out.
    """
    missing = [name for name in teacher.classes if name not in task.classes]
    if missing:
        raise PreceptorError(
            f"centres need samples of each of the teacher's classes, and {task.name} has none named "
            f"{listed(map(repr, missing))}: rename its classes, or leave the data out to use classifier rows"
        )
    position = {name: index for index, name in enumerate(teacher.classes)}
    mapping = np.array([position.get(name, -1) for name in task.classes])
    labels = mapping[task.train.labels]
    kept = np.flatnonzero(labels >= 0)
    split = task.train if len(kept) == len(labels) else task.train.select(kept)
    outputs = extract(teacher, split, device=device, cache=False)
    return class_centers(
        torch.from_numpy(np.asarray(outputs.features)), torch.from_numpy(labels[kept]), len(teacher.classes)
    )
