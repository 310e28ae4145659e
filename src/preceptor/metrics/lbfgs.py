"""Minimiser of the linear probe's loss: L-BFGS preconditioned by the Gram matrix, with a duality gap.

The Hessian of the cross-entropy is, up to the softmax weights, `X^T X` for every class. So the inverse of
`X^T X / N + (penalty / curvature) I`, factorised once, turns the problem into a well-conditioned one; the
start is the ridge regression it gives, at its best scale; and L-BFGS learns the rest in about eight steps.
Logits are linear in the step, so the line search needs no product with the features.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

# Share of 1/C that stands for the mean of p (1 - p) in the preconditioner. From 0.1 to 1 it makes a
# difference of one or two iterations; very easy tasks want it small.
CURVATURE = 0.25
MEMORY = 10


@dataclass(frozen=True)
class Spaces:
    """Parameters, their images (logits) and inner products, for N >= d and for N < d.

    Parameters are (n + 1, C): weights, or for N < d coefficients of the samples (W = X^T A, where all steps
    lie), and the bias in the last row. The dual of a block is what its plain product with another block takes
    to be the inner product of the weights: itself, or for N < d its product with X X^T. That form wants
    float64: the coefficients reach `strength`, and X X^T has a kernel in which they are large for nothing.
    """

    values: Tensor  # (N, d)
    gram: Tensor  # (N, N), only for N < d
    factor: Tensor  # Cholesky factor of the preconditioner
    is_dual: bool
    penalty: float
    curvature: float

    @classmethod
    def of(cls, values: Tensor, gram: Tensor, is_dual: bool, classes: int, strength: float) -> Spaces:
        """Factorise the preconditioner; `gram` holds at least its lower triangle."""
        penalty, curvature = 1 / (strength * len(values)), CURVATURE / classes
        shifted = gram / len(values)
        shifted.diagonal().add_(penalty / curvature)
        full = gram.tril() + gram.tril(-1).T if is_dual else gram
        return cls(values, full, torch.linalg.cholesky(shifted), is_dual, penalty, curvature)

    def image(self, block: Tensor) -> Tensor:
        """The logits (N, C) that the parameters give."""
        return torch.addmm(block[-1], self.gram if self.is_dual else self.values, block[:-1])

    def pull(self, residual: Tensor, block: Tensor) -> Tensor:
        """The gradient of the loss, from the mean residual (N, C) and the parameters."""
        inner = residual if self.is_dual else self.values.T @ residual
        return torch.cat([inner + self.penalty * block[:-1], residual.sum(dim=0, keepdim=True)])

    def dual(self, block: Tensor) -> Tensor:
        """What `(dual(a) * b).sum()` needs to be the inner product of a and b."""
        return torch.cat([self.gram @ block[:-1], block[-1:]]) if self.is_dual else block

    def dual_of(self, block: Tensor, image: Tensor) -> Tensor:
        """`dual(block)` without a product, from the image that is at hand."""
        return torch.cat([image - block[-1], block[-1:]]) if self.is_dual else block

    def precondition(self, block: Tensor) -> Tensor:
        """The inverse of the model Hessian applied to a gradient."""
        solved = torch.cholesky_solve(block[:-1], self.factor)
        return torch.cat([solved, block[-1:]]) / self.curvature

    def weight(self, block: Tensor) -> Tensor:
        """The weights (d, C) of the parameters."""
        return self.values.T.to(block.dtype) @ block[:-1] if self.is_dual else block[:-1]


@dataclass(frozen=True)
class Solution:
    """Where the minimiser stopped. `gap` bounds the distance of `loss` from the minimum."""

    parameters: Tensor  # (n + 1, C)
    logits: Tensor  # (N, C)
    loss: float
    gap: float
    iterations: int
    converged: bool


def minimize(spaces: Spaces, labels: Tensor, classes: int, tolerance: float, max_iterations: int) -> Solution:
    """The minimum of cross-entropy plus penalty, to a duality gap of `tolerance` times the loss."""
    own = labels[:, None]  # (N, 1)
    history: deque[_Pair] = deque(maxlen=MEMORY)
    point = _ridge(spaces, own, classes)
    gradient, gap = _gradient(spaces, point, own)
    iteration = 0
    while gap > tolerance * point.loss + 1e-9 and iteration < max_iterations:
        direction = _inverse_hessian(gradient, history).mul_(-1)
        image = spaces.image(direction)
        line = _Line.of(spaces, point, own, direction, spaces.dual_of(direction, image), image)
        moved = line.descend(_dot(gradient.dual, direction))
        if moved.loss >= point.loss:
            if not history:
                break  # there are no digits left to go down by
            history.clear()
            continue
        moved = _rescale(spaces, moved, own)
        step, step_dual = moved.parameters - point.parameters, moved.dual - point.dual
        old, point = gradient, moved
        gradient, gap = _gradient(spaces, point, own)
        pair = _Pair(step, step_dual, gradient - old)
        if pair.product > 0:
            history.append(pair)
        iteration += 1
    converged = gap <= tolerance * point.loss + 1e-9
    return Solution(point.parameters, point.logits, point.loss, gap, iteration, converged)


@dataclass(frozen=True)
class _Point:
    parameters: Tensor
    dual: Tensor  # spaces.dual(parameters)
    logits: Tensor
    probabilities: Tensor
    loss: float


@dataclass(frozen=True)
class _Gradient:
    """A gradient, or a change of it, with its dual and what the preconditioner makes of it."""

    plain: Tensor
    dual: Tensor
    preconditioned: Tensor

    def __sub__(self, other: _Gradient) -> _Gradient:
        return _Gradient(
            self.plain - other.plain, self.dual - other.dual, self.preconditioned - other.preconditioned
        )


class _Pair:
    """A step and the change of the gradient along it."""

    def __init__(self, step: Tensor, step_dual: Tensor, change: _Gradient) -> None:
        self.step, self.step_dual, self.change = step, step_dual, change
        self.product = _dot(step_dual, change.plain)


def _dot(a: Tensor, b: Tensor) -> float:
    # Row sums in float32, their sum in float64: a single float32 sum of a million terms loses three digits.
    return float((a * b).sum(dim=1).sum(dtype=torch.float64))


@dataclass(frozen=True)
class _Trial:
    length: float
    loss: float
    slope: float
    bend: float
    logits: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class _Line:
    """The loss along a direction whose image is known: a trial costs passes over the logits, no product."""

    point: _Point
    own: Tensor  # (N, 1) labels
    direction: Tensor
    direction_dual: Tensor
    image: Tensor  # (N, C)
    labelled: float  # mean of the image at the labels
    penalty: float
    norms: tuple[float, float, float]  # <W, W>, <W, D>, <D, D>

    @classmethod
    def of(
        cls, spaces: Spaces, point: _Point, own: Tensor, direction: Tensor, dual: Tensor, image: Tensor
    ) -> _Line:
        here, there = point.dual[:-1], direction[:-1]
        norms = (_dot(here, point.parameters[:-1]), _dot(here, there), _dot(dual[:-1], there))
        labelled = float(image.gather(1, own).mean(dtype=torch.float64))
        return cls(point, own, direction, dual, image, labelled, spaces.penalty, norms)

    def at(self, length: float) -> _Trial:
        """Loss, slope and curvature at `length` times the direction."""
        logits = torch.add(self.point.logits, self.image, alpha=length)
        logs = torch.log_softmax(logits, dim=1)
        square, cross, norm = self.norms
        loss = -float(logs.gather(1, self.own).mean(dtype=torch.float64))
        loss += 0.5 * self.penalty * (square + 2 * length * cross + length**2 * norm)
        probabilities = logs.exp_()
        weighted = probabilities * self.image
        means = weighted.sum(dim=1)
        slope = float(means.mean(dtype=torch.float64)) - self.labelled
        slope += self.penalty * (cross + length * norm)
        bend = _dot(weighted, self.image) / len(means) - float((means * means).mean(dtype=torch.float64))
        return _Trial(length, loss, slope, bend + self.penalty * norm, logits, probabilities)

    def reach(self, trial: _Trial) -> _Point:
        """The point of a trial."""
        parameters = torch.add(self.point.parameters, self.direction, alpha=trial.length)
        dual = parameters
        if self.point.dual is not self.point.parameters:
            dual = torch.add(self.point.dual, self.direction_dual, alpha=trial.length)
        return _Point(parameters, dual, trial.logits, trial.probabilities, trial.loss)

    def descend(self, first_slope: float) -> _Point:
        """Newton's method from 1 on, until the loss has fallen and its slope is a tenth of the first."""
        trial = self.at(1.0)
        for _ in range(20):
            fallen = trial.loss <= self.point.loss + 1e-4 * trial.length * first_slope
            if not trial.bend > 0 or (fallen and abs(trial.slope) <= 0.1 * abs(first_slope)):
                break
            length = trial.length - trial.slope / trial.bend
            trial = self.at(min(max(length, trial.length / 8), 4 * trial.length))
        return self.reach(trial)


def _rescale(spaces: Spaces, point: _Point, own: Tensor) -> _Point:
    """The best multiple of the weights, by Newton's method; the logits are at hand, so it costs no product.

    Cross-entropy and penalty trade off along this line. It is what keeps the cross-entropy, and not only its
    sum with the penalty, within the tolerance, and on easy tasks it saves a third of the iterations.
    """
    direction, dual = point.parameters.clone(), point.dual.clone()
    direction[-1], dual[-1] = 0, 0
    line = _Line.of(spaces, point, own, direction, dual, point.logits - point.parameters[-1])
    best = trial = line.at(0.0)
    for _ in range(3):
        if not trial.bend > 0:
            break
        trial = line.at(trial.length - trial.slope / trial.bend)
        if trial.loss >= best.loss:
            break
        change, best = abs(trial.length - best.length), trial
        if change < 0.02:
            break
    return line.reach(best) if best.length else point


def _ridge(spaces: Spaces, own: Tensor, classes: int) -> _Point:
    """The start: ridge regression on the labels, at the scale that minimises the loss."""
    samples = len(own)
    kind = spaces.factor.dtype
    share = torch.bincount(own[:, 0], minlength=classes).to(kind) / samples
    prior = torch.zeros(len(spaces.factor) + 1, classes, dtype=kind)
    prior[-1] = share.clamp_min(0.5 / samples).log()
    logits = prior[-1].expand(samples, -1)
    probabilities = torch.softmax(logits, dim=1)
    loss = -float(torch.log_softmax(logits, dim=1).gather(1, own).mean(dtype=torch.float64))
    start = _Point(prior, spaces.dual(prior), logits, probabilities, loss)
    gradient = spaces.pull(_residual(share.expand(samples, -1), own), prior)
    direction = -spaces.precondition(gradient)
    direction[-1] = 0
    image = spaces.image(direction)
    line = _Line.of(spaces, start, own, direction, spaces.dual_of(direction, image), image)
    point = line.descend(_dot(spaces.dual(gradient), direction))
    return point if point.loss < start.loss else start


def _residual(probabilities: Tensor, own: Tensor) -> Tensor:
    """(p - y) / N, (N, C)."""
    residual = probabilities / len(own)
    return residual.scatter_add_(1, own, residual.new_full(own.shape, -1 / len(own)))


def _inverse_hessian(gradient: _Gradient, history: deque[_Pair]) -> Tensor:
    """The two loops of L-BFGS (Nocedal and Wright, Alg. 7.4) around the preconditioner.

    The preconditioner is linear and every gradient has gone through it once, so that none is needed here.
    """
    vector, preconditioned, weights = gradient.plain.clone(), gradient.preconditioned.clone(), []
    for pair in reversed(history):
        weights.append(_dot(pair.step_dual, vector) / pair.product)
        vector.add_(pair.change.plain, alpha=-weights[-1])
        preconditioned.add_(pair.change.preconditioned, alpha=-weights[-1])
    if history:
        last = history[-1]
        preconditioned.mul_(last.product / _dot(last.change.dual, last.change.preconditioned))
    for pair, weight in zip(history, reversed(weights), strict=True):
        share = weight - _dot(pair.change.dual, preconditioned) / pair.product
        preconditioned.add_(pair.step, alpha=share)
    return preconditioned


def _gradient(spaces: Spaces, point: _Point, own: Tensor) -> tuple[_Gradient, float]:
    """The gradient, and how far the loss can be above its minimum.

    `lse(z) >= <p, z> + H(p)`, with equality at p = softmax(z), bounds the minimum from below by
    mean H(p) - |X^T residual|^2 / (2 penalty) + <sum of residuals, bias>, where the last term takes the best
    bias to be within 1 of the present one for each class. Cross-entropy less H(p) is <residual, logits>.
    """
    residual = _residual(point.probabilities, own)
    gradient = spaces.pull(residual, point.parameters)
    dual = spaces.dual(gradient)
    pulled = gradient[:-1] - spaces.penalty * point.parameters[:-1]
    pulled_dual = dual[:-1] - spaces.penalty * point.dual[:-1]
    drift = residual.sum(dim=0)
    gap = _dot(residual, point.logits) - float((drift * point.parameters[-1]).sum())
    gap += 0.5 * spaces.penalty * _dot(point.parameters[:-1], point.dual[:-1])
    gap += _dot(pulled, pulled_dual) / (2 * spaces.penalty) + float(drift.abs().sum())
    return _Gradient(gradient, dual, spaces.precondition(gradient)), gap
