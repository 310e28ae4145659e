"""A linear probe on the teacher's features as a teacher with the student's classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from preceptor.core import PreceptorError
from preceptor.distill.losses.kd import kl_rows
from preceptor.distill.losses.method import Method, row_mean, task_loss, teacher_of
from preceptor.distill.losses.sinkhorn import Sinkhorn, schedule_factor
from preceptor.distill.losses.step import Context, Step

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
CHOICE_ROWS = 5000
LARGEST = 2**28  # features that are fitted on at once: 2 GiB in double precision


@dataclass(frozen=True)
class Probe:
    """A linear classifier of raw features: ``features @ weight.T + bias``."""

    weight: Tensor  # (C_S, d)
    bias: Tensor  # (C_S,)
    penalty: float


def fit_probe(features: Tensor, labels: Tensor, num_classes: int, penalty: float | None = None) -> Probe:
    """Multinomial logistic regression on standardised features: mean cross-entropy + penalty/2 ‖W‖².

    Without `penalty`, the one of `PENALTIES` with the best likelihood on every fourth row, sorted by class, after
    training on the others (from 10,000 rows on a fixed stride takes 5,000 to 7,500 of them) is taken, and the probe is
    fitted on all rows; of more than `LARGEST` features (131,072 rows of 2,048) on every second, third, … row of each
    class. No random numbers are used.

    The ranking's probe (`preceptor.metrics.linear_probe`) is another fit of the paper's fictitious student: one for
    each teacher, so fast and with a fixed penalty, where this one is fitted once and a student learns from it.
    """
    if features.numel() > LARGEST:
        rows = _some_of_each_class(labels.long(), num_classes, math.ceil(features.numel() / LARGEST))
        features, labels = features[rows], labels[rows]
    features, labels = features.double(), labels.long()
    mean = features.mean(dim=0)
    spread = (features - mean).square().mean(dim=0).sqrt()
    # Values that float32, in which the probe is applied, can hardly tell apart are a constant, which says nothing.
    constant = spread <= 4 * torch.finfo(torch.float32).eps * features.abs().amax(dim=0)
    spread = torch.where(constant, torch.inf, spread)
    scaled = (features - mean) / spread
    if penalty is None:
        penalty = _best_penalty(scaled, labels, num_classes)
    weight, bias = _logistic(scaled, labels, num_classes, penalty)
    weight = weight / spread
    return Probe(weight.float(), (bias - weight @ mean).float(), penalty)


def _some_of_each_class(labels: Tensor, num_classes: int, stride: int) -> Tensor:
    """Every `stride`-th row of each class, its first among them, in their order."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels, minlength=num_classes)
    place = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[labels[order]]
    return order[place % stride == 0].sort().values


def _best_penalty(scaled: Tensor, labels: Tensor, num_classes: int) -> float:
    # Sorted by class first, so that a stride takes the same share of each class.
    order = labels.argsort(stable=True)
    order = order[:: max(1, len(order) // CHOICE_ROWS)]
    held_out = torch.arange(len(order), device=order.device) % 4 == 3
    if not bool(held_out.any()):
        return PENALTIES[-1]
    inner, outer = order[~held_out], order[held_out]
    losses = []
    for penalty in PENALTIES:
        weight, bias = _logistic(scaled[inner], labels[inner], num_classes, penalty)
        logits = functional.linear(scaled[outer], weight, bias)
        losses.append(float(functional.cross_entropy(logits, labels[outer])))
    return PENALTIES[losses.index(min(losses))]


def _logistic(scaled: Tensor, labels: Tensor, num_classes: int, penalty: float) -> tuple[Tensor, Tensor]:
    weight = scaled.new_zeros(num_classes, scaled.shape[1], requires_grad=True)
    bias = scaled.new_zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(functional.linear(scaled, weight, bias), labels)
        loss = loss + 0.5 * penalty * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return weight.detach(), bias.detach()


def probe_from(context: Context, probe: Probe | None, penalty: float | None) -> Probe:
    """The given probe, or one fitted on the teacher's clean outputs over the training set."""
    if probe is not None:
        return probe
    if context.train_outputs is None:
        raise PreceptorError(
            "a probe is fitted on the teacher's outputs over the training set; extract them and pass "
            "train_outputs, or give a fitted probe"
        )
    outputs = context.train_outputs
    return fit_probe(
        torch.as_tensor(outputs.features),
        torch.as_tensor(outputs.labels),
        len(context.student_classes),
        penalty,
    )


class ProbeDistillation(Method):
    """Knowledge distillation from a linear probe, which has the student's classes whatever the teacher's are.

    The paper's fictitious student f_F (Sec. 5) put to use: ``task_weight · ℓ(y, f_S) + weight · τ² ·
    KL(ρ_τ(f_F(φ_T(x))) ‖ ρ_τ(f_S(x)))``. The probe is fitted once on the teacher's clean features and
    applied to the features of each augmented view. Not in the paper; the defaults are ours.
    """

    name = "probe-kd"
    uses_unlabelled = True
    reference = "preceptor"
    term_names = ("task", "probe")
    probe_weight: Tensor
    probe_bias: Tensor

    def __init__(
        self,
        context: Context,
        *,
        temperature: float = 4.0,
        weight: float = 1.0,
        task_weight: float = 1.0,
        penalty: float | None = None,
        probe: Probe | None = None,
        **options: object,
    ) -> None:
        super().__init__(context, **options)
        self.temperature, self.weight, self.task_weight = temperature, weight, task_weight
        fitted = probe_from(context, probe, penalty)
        self.register_buffer("probe_weight", fitted.weight)
        self.register_buffer("probe_bias", fitted.bias)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the divergence from the probe's predictions."""
        rows = probe_rows(self.probe_weight, self.probe_bias, step, self.temperature)
        return {
            "task": self.task_weight * task_loss(step),
            "probe": self.weight * row_mean(rows, step.weights),
        }


def probe_rows(weight: Tensor, bias: Tensor, step: Step, temperature: float) -> Tensor:
    """τ² KL between the probe's and the student's predictions of each row: (B,)."""
    student = step.student.logits
    features = teacher_of(step).features.to(weight.dtype)
    return kl_rows(functional.linear(features, weight, bias).to(student.dtype), student, temperature)


class SinkhornProbe(Sinkhorn):
    """The transport term and the probe term together.

    ``ℓ(y, f_S) + weight · S_ε + probe_weight · τ_F² · KL(probe ‖ f_S)``: see `Sinkhorn` for the first two
    and their options, `ProbeDistillation` for the third. Not in the paper; the defaults of the probe term
    are ours. The transport term is softer and stronger than the paper's, and both terms fall to nothing: of all that
    was tried with many labels this gained most, after 60 epochs and after 200 (docs/choosing.md).
    """

    name = "sinkhorn+probe"
    reference = "Lu et al. 2022; preceptor"
    term_names = ("task", "sinkhorn", "probe")
    probe_matrix: Tensor
    probe_bias: Tensor

    def __init__(
        self,
        context: Context,
        *,
        weight: float = 30.0,
        temperature: float = 6.0,
        schedule: str = "linear-decay",
        probe_weight: float = 1.0,
        probe_temperature: float = 4.0,
        penalty: float | None = None,
        probe: Probe | None = None,
        **options: Any,
    ) -> None:
        super().__init__(context, weight=weight, temperature=temperature, schedule=schedule, **options)
        self.probe_weight, self.probe_temperature = probe_weight, probe_temperature
        fitted = probe_from(context, probe, penalty)
        self.register_buffer("probe_matrix", fitted.weight)
        self.register_buffer("probe_bias", fitted.bias)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """The terms of `Sinkhorn` and the divergence from the probe, both on the weight's schedule."""
        rows = probe_rows(self.probe_matrix, self.probe_bias, step, self.probe_temperature)
        weight = self.probe_weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {**super().terms(step), "probe": weight * row_mean(rows, step.weights)}
