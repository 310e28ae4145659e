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
    target = torch.nn.functional.one_hot(labels, classes).to(spaces.factor.dtype)  # (N, C)
    history: deque[_Pair] = deque(maxlen=MEMORY)
    point = _ridge(spaces, target)
    gradient, gap = _gradient(spaces, point, target)
    iteration = 0
    while gap > tolerance * point.loss + 1e-9 and iteration < max_iterations:
        direction = _inverse_hessian(gradient, history).mul_(-1)
        image = spaces.image(direction)
        direction_dual = spaces.dual_of(direction, image)
        moved = _search(spaces, point, target, direction, direction_dual, image, gradient.dual)
        if moved.loss >= point.loss:
            if not history:
                break  # there are no digits left to go down by
            history.clear()
            continue
        moved = _rescale(spaces, moved, target)
        step, step_dual = moved.parameters - point.parameters, moved.dual - point.dual
        old, point = gradient, moved
        gradient, gap = _gradient(spaces, point, target)
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

    @classmethod
    def at(cls, spaces: Spaces, parameters: Tensor, dual: Tensor, logits: Tensor, target: Tensor) -> _Point:
        log_probabilities = torch.log_softmax(logits, dim=1)
        cross_entropy = -_dot(log_probabilities, target) / len(target)
        loss = cross_entropy + 0.5 * spaces.penalty * _dot(parameters[:-1], dual[:-1])
        return cls(parameters, dual, logits, log_probabilities.exp_(), loss)


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


def _ridge(spaces: Spaces, target: Tensor) -> _Point:
    """The start: ridge regression on the labels, at the scale that minimises the loss."""
    share = target.mean(dim=0)
    prior = torch.zeros(len(spaces.factor) + 1, target.shape[1], dtype=target.dtype)
    prior[-1] = share.clamp_min(0.5 / len(target)).log()
    start = _Point.at(spaces, prior, prior, prior[-1].expand(len(target), -1), target)  # its weights are 0
    residual = (share - target) / len(target)
    gradient = spaces.pull(residual, prior)
    direction = -spaces.precondition(gradient)
    direction[-1] = 0
    image = spaces.image(direction)
    dual = spaces.dual_of(direction, image)
    point = _search(spaces, start, target, direction, dual, image, spaces.dual(gradient))
    return point if point.loss < start.loss else start


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


def _search(
    spaces: Spaces,
    point: _Point,
    target: Tensor,
    direction: Tensor,
    direction_dual: Tensor,
    image: Tensor,
    gradient_dual: Tensor,
) -> _Point:
    """Newton's method on the loss along a line, until it has fallen and its slope is a tenth of the first."""
    start_slope = _dot(gradient_dual, direction)
    norm = _dot(direction_dual[:-1], direction[:-1])
    labelled = _dot(image, target)
    length = 1.0
    for _ in range(20):
        moved = _Point.at(
            spaces,
            point.parameters + length * direction,
            point.dual + length * direction_dual,
            point.logits + length * image,
            target,
        )
        means = (moved.probabilities * image).sum(dim=1)
        slope = (float(means.sum(dtype=torch.float64)) - labelled) / len(target)
        slope += spaces.penalty * (_dot(point.dual[:-1], direction[:-1]) + length * norm)
        fallen = moved.loss <= point.loss + 1e-4 * length * start_slope
        if fallen and abs(slope) <= 0.1 * abs(start_slope):
            break
        bend = _dot(moved.probabilities, image * image) - float((means * means).sum(dtype=torch.float64))
        bend = bend / len(target) + spaces.penalty * norm
        if not bend > 0:
            break
        length = min(max(length - slope / bend, length / 8), 4 * length)
    return moved


def _rescale(spaces: Spaces, point: _Point, target: Tensor) -> _Point:
    """The best multiple of the weights, by Newton's method; the logits are at hand, so it costs no product.

    Cross-entropy and penalty trade off along this line. It is what keeps the cross-entropy, and not only its
    sum with the penalty, within the tolerance, and on easy tasks it saves a third of the iterations.
    """
    bias = point.parameters[-1]
    image = point.logits - bias
    norm, labelled = _dot(point.parameters[:-1], point.dual[:-1]), _dot(image, target)
    best, scale = point, 1.0
    for _ in range(3):
        means = (best.probabilities * image).sum(dim=1)
        slope = (float(means.sum(dtype=torch.float64)) - labelled) / len(target)
        bend = _dot(best.probabilities, image * image) - float((means * means).sum(dtype=torch.float64))
        bend = bend / len(target) + spaces.penalty * norm
        if not bend > 0:
            break
        change = -(slope + spaces.penalty * scale * norm) / bend
        scaled = [(scale + change) * block for block in (point.parameters, point.dual)]
        for block in scaled:
            block[-1] = bias
        moved = _Point.at(spaces, scaled[0], scaled[1], (scale + change) * image + bias, target)
        if moved.loss >= best.loss:
            break
        best, scale = moved, scale + change
        if abs(change) < 1e-2:
            break
    return best


def _gradient(spaces: Spaces, point: _Point, target: Tensor) -> tuple[_Gradient, float]:
    """The gradient, and how far the loss can be above its minimum.

    `lse(z) >= <p, z> + H(p)` with equality at p = softmax(z) bounds the minimum from below by
    mean H(p) - |X^T residual|^2 / (2 penalty) + <sum of residuals, bias>. The last term takes the best
    bias to be within 1 of the present one for each class.
    """
    residual = (point.probabilities - target) / len(target)
    gradient = spaces.pull(residual, point.parameters)
    dual = spaces.dual(gradient)
    entropy = -_dot(point.probabilities, point.probabilities.clamp_min(1e-30).log()) / len(target)
    pulled = gradient[:-1] - spaces.penalty * point.parameters[:-1]
    pulled_dual = dual[:-1] - spaces.penalty * point.dual[:-1]
    drift = residual.sum(dim=0)
    lower = entropy - _dot(pulled, pulled_dual) / (2 * spaces.penalty)
    lower += float((drift * point.parameters[-1]).sum()) - float(drift.abs().sum())
    return _Gradient(gradient, dual, spaces.precondition(gradient)), point.loss - lower
