"""What the minimiser of the linear probe's loss needs of the features: products, and a model of the Hessian."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

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
class ClassTerms:
    """What a term of its own for each class changes in the inverse of the model Hessian.

    The samples of class c have far more weight p (1 - p) in its column's Hessian than the others have. The most
    of what they add is along their mean: `weight_c pull_c pull_c^T`, inverted by Sherman and Morrison's formula.
    It takes a tenth to a half off the gap after the first step.
    """

    steps: Tensor  # (d, C) what the common model makes of the pulls
    shares: Tensor  # (C,) weight / (1 + weight <pull, step>)

    @classmethod
    def of(cls, pulls: Tensor, steps: Tensor, weights: Tensor) -> ClassTerms:
        """From the pulls (d, C), what the common model makes of them, and the weights (C,)."""
        return cls(steps, weights / (1 + weights * (pulls * steps).sum(dim=0)))

    def correct(self, step: Tensor, gradient: Tensor) -> Tensor:
        """The common model's step for a gradient (d + 1, C), changed in place to that of the whole model."""
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

    def places(self) -> Iterable[tuple[Tensor, slice]]:
        """Each block and where its rows lie among the N."""
        edges = np.cumsum([0, *map(len, self.blocks)]).tolist()
        return zip(self.blocks, (slice(*edge) for edge in pairwise(edges)), strict=True)


class Ask(NamedTuple):
    """What a minimiser wants to know of its problem next."""

    kind: Literal["image", "pull", "step"]
    operand: Tensor


def answer(problems: Sequence[Problem], asks: Sequence[Ask]) -> list[Tensor]:
    """The answers to asks of one kind, each about its problem; problems that share blocks share the products."""
    operands = [ask.operand for ask in asks]
    if asks[0].kind == "image":
        return _images(problems, operands)
    if asks[0].kind == "pull":
        return _pulls(problems, operands)
    common = problems[0].preconditioner
    if len(problems) == 1 or any(problem.preconditioner is not common for problem in problems):
        return [problem.preconditioner(each) for problem, each in zip(problems, operands, strict=True)]
    return _parted(common(torch.cat(operands, dim=1)), operands)


def _images(problems: Sequence[Problem], parameters: Sequence[Tensor]) -> list[Tensor]:
    """The logits (N, C) that the parameters (d + 1, C) give."""
    images = [
        torch.empty(problem.samples, each.shape[1])
        for problem, each in zip(problems, parameters, strict=True)
    ]
    for block, uses in _uses(problems):
        weights = [parameters[number][:-1] for number, _ in uses]
        if len(uses) == 1:
            number, rows = uses[0]
            product(block, weights[0], out=images[number][rows])
            continue
        wide = product(block, torch.cat(weights, dim=1))
        for (number, rows), part in zip(uses, _parted(wide, weights), strict=True):
            images[number][rows] = part
    return [image.add_(each[-1]) for image, each in zip(images, parameters, strict=True)]


def _pulls(problems: Sequence[Problem], residuals: Sequence[Tensor]) -> list[Tensor]:
    """X^T residual, and the sums of the residual in the last row: (d + 1, C)."""
    pulls = [
        torch.zeros(problem.sums.shape[1] + 1, each.shape[1])
        for problem, each in zip(problems, residuals, strict=True)
    ]
    for block, uses in _uses(problems):
        parts = [residuals[number][rows] for number, rows in uses]
        wide = product(block.T, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
        for (number, _), part in zip(uses, _parted(wide, parts), strict=True):
            pulls[number][:-1] += part
    for pull, residual in zip(pulls, residuals, strict=True):
        pull[-1] = residual.sum(dim=0)
    return pulls


def _uses(problems: Sequence[Problem]) -> Iterable[tuple[Tensor, list[tuple[int, slice]]]]:
    """Each block once, with the problems it belongs to and where its rows lie there."""
    found: dict[tuple[int, int], tuple[Tensor, list[tuple[int, slice]]]] = {}
    for number, problem in enumerate(problems):
        for block, rows in problem.places():
            found.setdefault((block.data_ptr(), len(block)), (block, []))[1].append((number, rows))
    return found.values()


def _parted(wide: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The columns of each of the matrices that were laid side by side."""
    return list(wide.split([each.shape[1] for each in like], dim=1))
