"""What the minimiser of the linear probe's loss needs of the features: products, and a model of the Hessian."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from preceptor.metrics.linear_algebra import Cholesky, product

# Share of 1/C that stands for the mean of p (1 - p) in the preconditioner. From 0.1 to 1 it makes a
# difference of one or two iterations; very easy tasks want it small.
CURVATURE = 0.25
SMALLEST_SHIFT = 1e-6  # of the preconditioner's diagonal, whose trace is 1: what float32 can still factorise


@dataclass(frozen=True)
class Preconditioner:
    """The inverse of the model Hessian."""

    factor: Cholesky  # (d, d)
    curvature: float

    @classmethod
    def of(cls, gram: Tensor, classes: int, penalty: float) -> Preconditioner:
        """From `X^T X / N`."""
        curvature = CURVATURE / classes
        shifted = gram.clone()
        shifted.diagonal().add_(max(penalty / curvature, SMALLEST_SHIFT))
        return cls(Cholesky.of(shifted.numpy()), curvature)

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step that the model takes for a gradient (d + 1, C)."""
        step = torch.empty_like(gradient)
        step[:-1] = torch.from_numpy(self.factor.solve(gradient[:-1].numpy()))
        step[-1] = gradient[-1]
        return step.mul_(1 / self.curvature)


@dataclass(frozen=True)
class ClassPreconditioner:
    """The inverse of the model Hessian and, for each class, of a term of its own.

    The samples of class c have far more weight p (1 - p) in its column's Hessian than the others have. The most
    of what they add is along their mean: `weight_c pull_c pull_c^T`, inverted by Sherman and Morrison's formula.
    It halves the gap of the first steps.
    """

    common: Preconditioner
    steps: Tensor  # (d, C) what `common` makes of the pulls
    shares: Tensor  # (C,) weight / (1 + weight <pull, step>)

    @classmethod
    def of(cls, common: Preconditioner, pulls: Tensor, steps: Tensor, weights: Tensor) -> ClassPreconditioner:
        """From the pulls (d, C), what `common` makes of them, and the weights (C,)."""
        return cls(common, steps, weights / (1 + weights * (pulls * steps).sum(dim=0)))

    def __call__(self, gradient: Tensor) -> Tensor:
        """The step that the model takes for a gradient (d + 1, C)."""
        step = self.common(gradient)
        along = (self.steps * gradient[:-1]).sum(dim=0)
        step[:-1].addcmul_(self.steps, self.shares * along, value=-1)
        return step


@dataclass(frozen=True)
class Problem:
    """Cross-entropy and penalty over the rows of some blocks. Parameters are (d + 1, C), the bias last."""

    blocks: tuple[Tensor, ...]  # (n, d) each, N rows together
    own: Tensor  # (N, 1) labels
    sums: Tensor  # (C, d) of the rows of each class
    penalty: float
    preconditioner: Preconditioner

    @property
    def samples(self) -> int:
        """N."""
        return len(self.own)

    def image(self, parameters: Tensor) -> Tensor:
        """The logits (N, C) that the parameters give."""
        images = torch.empty(self.samples, len(self.sums))
        for (start, stop), block in zip(self._spans(), self.blocks, strict=True):
            product(block, parameters[:-1], out=images[start:stop])
        return images.add_(parameters[-1])

    def pull(self, residual: Tensor) -> Tensor:
        """X^T residual, and the sums of the residual in the last row: (d + 1, C)."""
        pulled = torch.empty(self.sums.shape[1] + 1, len(self.sums))
        products = [
            product(block.T, residual[start:stop])
            for (start, stop), block in zip(self._spans(), self.blocks, strict=True)
        ]
        pulled[:-1] = sum(products[1:], products[0])
        pulled[-1] = residual.sum(dim=0)
        return pulled

    def _spans(self) -> Iterable[tuple[int, int]]:
        return pairwise(np.cumsum([0, *map(len, self.blocks)]).tolist())
