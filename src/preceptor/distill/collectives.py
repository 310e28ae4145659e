"""What crosses between processes with its gradient: sums over all of them, and the rows of all of them.

The loss of the global batch is the sum of the processes' losses. So where each process's loss depends on a number that
came from all of them, the gradient at that number is the sum of what they all have there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from preceptor.core import ModelOutput
from preceptor.distill.losses import Method, Step
from preceptor.distill.losses.method import full_precision
from preceptor.distill.losses.processes import Processes

_COLUMNS = ("labels", "targets", "weights", "indices")


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].detach().clone()
        dist.all_reduce(total)
        return total


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum over all processes, with its gradient."""
    return _SumOverRanks.apply(values)


class _GatherOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, values)
        return torch.stack(parts)  # (P, …)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[dist.get_rank()]


def rows_of_all(values: Tensor, rows: int) -> Tensor:
    """The rows of all processes in the order in which one process would have them, with their gradient.

    Args:
        values: (V·B, …) this process's rows, view after view.
        rows: B. Rows are dealt out in turn: row i of the global batch is row i // P of process i mod P.

    Returns:
        (V·P·B, …), view after view.
    """
    gathered = _GatherOverRanks.apply(values.contiguous())  # (P, V·B, …)
    return gathered.unflatten(1, (-1, rows)).movedim(0, 2).flatten(0, 2)


def step_of_all(step: Step, maps: bool) -> Step:
    """The step of the global batch, for methods that relate its rows to each other.

    Its terms are the same in every process, so each process's share of the loss is one P-th of them. Images stay
    those of the process, and so do feature maps unless they are asked for.
    """
    rows = len(step.labels)

    def output(own: ModelOutput | None) -> ModelOutput | None:
        if own is None:
            return None
        return ModelOutput(
            tuple(rows_of_all(full_precision(m), rows) for m in own.maps) if maps else own.maps,
            rows_of_all(full_precision(own.features), rows),
            rows_of_all(full_precision(own.logits), rows),
        )

    student = output(step.student)
    assert student is not None
    columns = {name: rows_of_all(getattr(step, name), rows) for name in _COLUMNS}
    return replace(step, student=student, teacher=output(step.teacher), **columns)


@dataclass(frozen=True)
class Group(Processes):
    """The processes of this training, for what in a method sums over the batch."""

    count: int

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, with its gradient."""
        return sum_over_ranks(values)


def join(method: Method, processes: Processes) -> None:
    """Tell a method, and the layers in it that take statistics of the batch, who else has rows of it."""
    for module in method.modules():
        if isinstance(getattr(module, "processes", None), Processes):
            module.processes = processes  # type: ignore[assignment]
