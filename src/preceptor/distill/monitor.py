"""Losses and accuracy gathered on the device, and the watch for losses that blow up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.devices import sum_over_processes

if TYPE_CHECKING:
    from lightning_fabric import Fabric

CHECK_EVERY = 50  # steps between two looks at the device; each look waits for it
_DIVERGED = 1e10  # a loss term beyond this is as lost as NaN
_NEVER = 2**62


class Monitor:
    """Sums over an epoch's steps, kept on the device so that no step waits for it."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.names: tuple[str, ...] = ()
        self.rows = 0
        self._exact = torch.float32 if fabric.device.type == "mps" else torch.float64
        self._sums: Tensor | None = None  # (T + 1,) terms times rows, then correct rows
        self._last: Tensor | None = None  # (T + 1,) the last step's
        self._first_bad: Tensor | None = None  # (T,) step at which a term blew up
        self._bad_values: Tensor | None = None  # (T,) and what it was

    def add(self, step: int, names: tuple[str, ...], values: Tensor, rows: int) -> None:
        """Note one step: this process's share of the terms (T,), then its correct rows."""
        if self._first_bad is None or self.names != names:
            self._allocate(names)
        assert self._sums is not None
        assert self._first_bad is not None
        assert self._bad_values is not None
        terms = values[:-1]
        # Rows are a Python number, so nothing has to be copied to the device.
        self._sums[:-1] += terms.to(self._exact) * rows
        self._sums[-1] += values[-1].to(self._exact)
        bad = ~(terms.abs() < _DIVERGED) & (self._first_bad == _NEVER)  # NaN compares false
        self._first_bad = torch.where(bad, step, self._first_bad)
        self._bad_values = torch.where(bad, terms, self._bad_values)
        self._last = values
        self.rows += rows

    def _allocate(self, names: tuple[str, ...]) -> None:
        if self.names and self.names != names:
            raise PreceptorError(
                f"the method's terms changed from {self.names} to {names}; they must stay the same"
            )
        self.names = names
        device = self.fabric.device
        if self._sums is None:
            self._sums = torch.zeros(len(names) + 1, dtype=self._exact, device=device)
        self._first_bad = torch.full((len(names),), _NEVER, device=device)
        self._bad_values = torch.zeros(len(names), device=device)

    def check(self, last_checkpoint: str) -> dict[str, float]:
        """Stop where a term is not a usable number; else the last step's terms."""
        if self._first_bad is None or self._last is None or self._bad_values is None:
            return {}
        first = self._first_bad
        if self.fabric.world_size > 1:
            first = first.clone()
            torch.distributed.all_reduce(first, op=torch.distributed.ReduceOp.MIN)
        steps = first.tolist()
        if min(steps) < _NEVER:
            self._stop(steps, last_checkpoint)
        values = sum_over_processes(self.fabric, self._last[:-1].clone()).tolist()
        return dict(zip(self.names, values, strict=True))

    def _stop(self, steps: list[int], last_checkpoint: str) -> None:
        assert self._bad_values is not None
        step = min(steps)
        values = self._bad_values.tolist()
        blamed = [
            f"{name} ({_described(value)})"
            for name, at, value in zip(self.names, steps, values, strict=True)
            if at == step
        ]
        raise PreceptorError(
            f"training diverged at step {step}: term {', '.join(blamed)}; {last_checkpoint}; "
            "lower the learning rate, clip gradients (clip 1.0) or use precision 32-true"
        )

    def summary(self) -> dict[str, Any]:
        """The epoch's mean loss, terms and training accuracy over all processes; then begin anew."""
        if self._sums is None or not self.rows:
            return {}
        sums = sum_over_processes(self.fabric, self._sums.clone()).tolist()
        terms = {name: total / self.rows for name, total in zip(self.names, sums[:-1], strict=True)}
        summary = {"loss": sum(terms.values()), "terms": terms, "train_accuracy": sums[-1] / self.rows}
        self._sums.zero_()
        self.rows = 0
        return summary

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Sums over all processes, for a checkpoint in the middle of an epoch."""
        if self._sums is None:
            return {}, {"names": [], "rows": 0}
        sums = sum_over_processes(self.fabric, self._sums.clone())
        return {"sums": sums}, {"names": list(self.names), "rows": self.rows}

    def load(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Put back what `state` gave; the first process carries the sums of all."""
        if not values["names"]:
            return
        self._allocate(tuple(values["names"]))
        self.rows = int(values["rows"])
        assert self._sums is not None
        if self.fabric.global_rank == 0:
            self._sums.copy_(tensors["sums"])


def _described(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def check_weights(tensors: Iterable[Tensor], step: int, last_checkpoint: str) -> None:
    """Stop before a checkpoint where a weight is not finite: it would not be a good one."""
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors])
    if norms and not bool(torch.stack([norm.float() for norm in norms]).isfinite().all()):
        raise PreceptorError(
            f"training diverged: a weight is NaN or infinite after step {step}; {last_checkpoint}; "
            "lower the learning rate, clip gradients (clip 1.0) or use precision 32-true"
        )
