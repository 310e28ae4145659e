"""Who has the rows of a batch: this process alone, unless a training loop says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """The processes that have the rows of a batch between them, each as many."""

    count: int = 1

    def total(self, values: Tensor) -> Tensor:
        """The sum over all of them."""
        return values


ALONE = Processes()
