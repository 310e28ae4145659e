"""Pieces that several methods put between student and teacher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from preceptor.core import ModelOutput
from preceptor.distill.losses.geometry import or_one
from preceptor.distill.losses.processes import ALONE, Processes
from preceptor.distill.losses.step import Context


@contextmanager
def seeded(context: Context) -> Iterator[None]:
    """Initialise parameters from the run's seed without touching the random state outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(context.seed)
        yield


def teacher_shape(context: Context) -> ModelOutput:
    """Shapes of the teacher's outputs; `Method.check` has refused a context without."""
    assert context.teacher_shape is not None
    return context.teacher_shape


def paired_levels(context: Context) -> list[tuple[int, int]]:
    """Which student map goes with which teacher map: from the deepest up, as many as both have."""
    student, teacher = len(context.student_shape.maps), len(teacher_shape(context).maps)
    count = min(student, teacher)
    return [(student - count + level, teacher - count + level) for level in range(count)]


def same_size(student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Average both maps down to the smaller height and width."""
    size = (min(student.shape[2], teacher.shape[2]), min(student.shape[3], teacher.shape[3]))
    return _pooled(student, size), _pooled(teacher, size)


def _pooled(maps: Tensor, size: tuple[int, int]) -> Tensor:
    return maps if tuple(maps.shape[2:]) == size else functional.adaptive_avg_pool2d(maps, size)


class RowBatchNorm(nn.Module):
    """Batch normalisation over the rows that count, and over positions for maps.

    Padding rows have no say, and a batch of one row works. It keeps no running statistics: losses are only
    evaluated in training. The statistics are those of all `processes`.
    """

    processes: Processes = ALONE

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.epsilon = epsilon

    def forward(self, values: Tensor, row_weights: Tensor) -> Tensor:
        """Normalise (B, c) or (B, c, h, w)."""
        dims = [0, *range(2, values.ndim)]
        shape = [1, -1] + [1] * (values.ndim - 2)
        share = row_weights.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
        share = share / or_one(self.processes.total(share.sum()))
        positions = values[0, 0].numel()
        mean = self.processes.total((values * share).sum(dim=dims, keepdim=True)) / positions
        centered = values - mean
        variance = self.processes.total((centered.square() * share).sum(dim=dims, keepdim=True)) / positions
        scaled = centered * (variance + self.epsilon).rsqrt()
        return scaled * self.weight.reshape(shape) + self.bias.reshape(shape)
