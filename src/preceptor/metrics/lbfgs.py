"""Minimiser of the linear probe's loss: L-BFGS preconditioned by the Gram matrix, with a duality gap.

The Hessian of the cross-entropy is, up to the softmax weights, `X^T X` for every class. So the inverse of
`X^T X / N + (penalty / curvature) I`, factorised once, turns the problem into a well-conditioned one; the
start is the ridge regression it gives, at its best scale; and L-BFGS learns the rest in about five steps.
Logits are linear in the step, so the line search needs no product with the features.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from preceptor.metrics.problem import Ask, ClassTerms, Problem, answer

MEMORY = 10
OWN_CURVATURE = 0.5  # share of p (1 - p) at the start that a class's own samples keep; 0.3 to 1 do alike


@dataclass(frozen=True)
class Solution:
    """Where the minimiser stopped. `gap` bounds the distance of `loss` from the minimum."""

    parameters: Tensor  # (d + 1, C)
    logits: Tensor  # (N, C)
    loss: float
    gap: float
    iterations: int
    converged: bool


def minimize(problem: Problem, tolerance: float, max_iterations: int) -> Solution:
    """The minimum of cross-entropy plus penalty, to a duality gap of `tolerance` times the loss."""
    return minimize_together([problem], tolerance, max_iterations)[0]


def minimize_together(problems: Sequence[Problem], tolerance: float, max_iterations: int) -> list[Solution]:
    """The minimum of each problem. They know nothing of each other, but the products they ask for are shared."""
    descents = [_descent(problem, tolerance, max_iterations) for problem in problems]
    asks = {number: next(descent) for number, descent in enumerate(descents)}
    solutions: dict[int, Solution] = {}
    while asks:
        kind = next(iter(asks.values())).kind
        chosen = [number for number, ask in asks.items() if ask.kind == kind]
        answers = answer([problems[number] for number in chosen], [asks[number] for number in chosen])
        for number, found in zip(chosen, answers, strict=True):
            try:
                asks[number] = descents[number].send(found)
            except StopIteration as end:
                del asks[number]
                solutions[number] = end.value
    return [solutions[number] for number in range(len(problems))]


def _descent(problem: Problem, tolerance: float, max_iterations: int) -> Generator[Ask, Tensor, Solution]:
    """Asks for products with the features, one after the other, until it has the solution."""
    history: deque[_Pair] = deque(maxlen=MEMORY)
    point, terms = yield from _ridge(problem)
    gradient = yield from _gradient(problem, terms, point, tolerance)
    iteration = 0
    while not gradient.small and iteration < max_iterations:
        direction = _inverse_hessian(gradient, history).mul_(-1)
        image = yield Ask("image", direction)
        line = _Line.of(problem, point, direction, image)
        moved = line.descend(dot(gradient.plain, direction))
        if moved.loss >= point.loss:
            if not history:
                break  # there are no digits left to go down by
            history.clear()
            continue
        moved = _rescale(problem, moved)
        step, old, point = moved.parameters - point.parameters, gradient, moved
        gradient = yield from _gradient(problem, terms, point, tolerance)
        iteration += 1
        if not gradient.small:
            pair = _Pair.of(step, gradient, old)
            if pair.product > 0:
                history.append(pair)
    return Solution(point.parameters, point.logits, point.loss, gradient.gap, iteration, gradient.small)


@dataclass(frozen=True)
class _Point:
    parameters: Tensor
    logits: Tensor
    probabilities: Tensor
    loss: float


@dataclass(frozen=True)
class _Gradient:
    plain: Tensor
    gap: float
    small: bool  # whether the gap is within the tolerance
    preconditioned: Tensor  # the step of the model for it; nothing where the gap is small, as none is taken


@dataclass(frozen=True)
class _Pair:
    """A step and the change of the gradient along it."""

    step: Tensor
    change: Tensor
    preconditioned: Tensor  # what the preconditioner makes of the change
    product: float

    @classmethod
    def of(cls, step: Tensor, there: _Gradient, here: _Gradient) -> _Pair:
        """From the step and the gradients at its ends."""
        change = there.plain - here.plain
        return cls(step, change, there.preconditioned - here.preconditioned, dot(step, change))


def dot(a: Tensor, b: Tensor) -> float:
    """The inner product of two matrices."""
    # Row sums in float32, their sum in float64: a single float32 sum of a million terms loses three digits.
    return float(torch.linalg.vecdot(a, b).sum(dtype=torch.float64))


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
    image: Tensor  # (N, C)
    labelled: float  # mean of the image at the labels
    penalty: float
    norms: tuple[float, float, float]  # <W, W>, <W, D>, <D, D>

    @classmethod
    def of(cls, problem: Problem, point: _Point, direction: Tensor, image: Tensor) -> _Line:
        here, there = point.parameters[:-1], direction[:-1]
        norms = (dot(here, here), dot(here, there), dot(there, there))
        labelled = float(image.gather(1, problem.own).mean(dtype=torch.float64))
        return cls(point, problem.own, direction, image, labelled, problem.penalty, norms)

    def at(self, length: float) -> _Trial:
        """Loss, slope and curvature at `length` times the direction."""
        logits = torch.add(self.point.logits, self.image, alpha=length)
        logs = torch.log_softmax(logits, dim=1)
        square, cross, norm = self.norms
        loss = -float(logs.gather(1, self.own).mean(dtype=torch.float64))
        loss += 0.5 * self.penalty * (square + 2 * length * cross + length**2 * norm)
        return self._trial(length, loss, logits, logs.exp_())

    def here(self) -> _Trial:
        """What `at(0)` gives, for less."""
        return self._trial(0.0, self.point.loss, self.point.logits, self.point.probabilities)

    def _trial(self, length: float, loss: float, logits: Tensor, probabilities: Tensor) -> _Trial:
        _, cross, norm = self.norms
        weighted = probabilities * self.image
        means = weighted.sum(dim=1)
        slope = float(means.mean(dtype=torch.float64)) - self.labelled
        slope += self.penalty * (cross + length * norm)
        bend = dot(weighted, self.image) / len(means) - float((means * means).mean(dtype=torch.float64))
        return _Trial(length, loss, slope, bend + self.penalty * norm, logits, probabilities)

    def reach(self, trial: _Trial) -> _Point:
        """The point of a trial."""
        parameters = torch.add(self.point.parameters, self.direction, alpha=trial.length)
        return _Point(parameters, trial.logits, trial.probabilities, trial.loss)

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


def _rescale(problem: Problem, point: _Point) -> _Point:
    """The best multiple of the weights, by Newton's method; the logits are at hand, so it costs no product.

    Cross-entropy and penalty trade off along this line. It is what keeps the cross-entropy, and not only its
    sum with the penalty, within the tolerance, and on easy tasks it saves a third of the iterations.
    """
    direction = point.parameters.clone()
    direction[-1] = 0
    line = _Line.of(problem, point, direction, point.logits - point.parameters[-1])
    best = trial = line.here()
    for _ in range(3):
        if not trial.bend > 0 or abs(trial.slope) < 1e-3 * trial.bend:
            break
        trial = line.at(trial.length - trial.slope / trial.bend)
        if trial.loss >= best.loss:
            break
        change, best = abs(trial.length - best.length), trial
        if change < 0.02:
            break
    return line.reach(best) if best.length else point


def _ridge(problem: Problem) -> Generator[Ask, Tensor, tuple[_Point, ClassTerms]]:
    """The start, ridge regression on the labels at the scale that minimises the loss; and the model there."""
    samples, (classes, dimensions) = problem.samples, problem.sums.shape
    share = torch.bincount(problem.own[:, 0], minlength=classes).float() / samples
    prior = torch.zeros(dimensions + 1, classes)
    prior[-1] = share.clamp_min(0.5 / samples).log()
    logits = prior[-1].expand(samples, -1)
    loss = -float(torch.log_softmax(logits, dim=1).gather(1, problem.own).mean(dtype=torch.float64))
    start = _Point(prior, logits, torch.softmax(logits, dim=1), loss)
    gradient = torch.zeros_like(prior)  # X^T (share - y) / N needs the sums of the classes only
    gradient[:-1] = (torch.outer(problem.sums.sum(dim=0), share) - problem.sums.T) / samples
    direction = -(yield Ask("step", gradient))
    image = yield Ask("image", direction)
    line = _Line.of(problem, start, direction, image)
    point = line.descend(dot(gradient, direction))
    point = point if point.loss < start.loss else start
    # A class pulls by its share of the samples times its mean, and its mean counts by share and p (1 - p).
    sure = point.probabilities.gather(1, problem.own)[:, 0]
    spread = torch.bincount(problem.own[:, 0], sure * (1 - sure), classes)
    weights = OWN_CURVATURE * spread / (samples * share.square()).clamp_min(0.25 / samples)
    return point, ClassTerms.of(-gradient[:-1], direction[:-1], weights)


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
        weights.append(dot(pair.step, vector) / pair.product)
        vector.add_(pair.change, alpha=-weights[-1])
        preconditioned.add_(pair.preconditioned, alpha=-weights[-1])
    if history:
        last = history[-1]
        preconditioned.mul_(last.product / dot(last.change, last.preconditioned))
    for pair, weight in zip(history, reversed(weights), strict=True):
        share = weight - dot(pair.change, preconditioned) / pair.product
        preconditioned.add_(pair.step, alpha=share)
    return preconditioned


def _gradient(
    problem: Problem, terms: ClassTerms, point: _Point, tolerance: float
) -> Generator[Ask, Tensor, _Gradient]:
    """The gradient, and how far the loss can be above its minimum.

    `lse(z) >= <p, z> + H(p)`, with equality at p = softmax(z), bounds the minimum from below by
    mean H(p) - |X^T residual|^2 / (2 penalty) + <sum of residuals, bias>, where the last term takes the best
    bias to be within 1 of the present one for each class. Cross-entropy less H(p) is <residual, logits>, so
    that what remains of the difference is |gradient|^2 / (2 penalty), the bias apart.
    """
    gradient = yield Ask("pull", _residual(point.probabilities, problem.own))
    drift = float(gradient[-1].abs().sum())
    gradient[:-1].add_(point.parameters[:-1], alpha=problem.penalty)
    gap = dot(gradient[:-1], gradient[:-1]) / (2 * problem.penalty) + drift
    if gap <= tolerance * point.loss + 1e-9:
        return _Gradient(gradient, gap, True, gradient.new_empty(0))
    step = yield Ask("step", gradient)
    return _Gradient(gradient, gap, False, terms.correct(step.contiguous(), gradient))
