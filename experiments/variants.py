"""Methods as the experiments run them: by stages, without waits for the host, and variants under trial."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from preceptor.core import Outputs
from preceptor.distill.losses import METHODS, Context, Method, Step
from preceptor.distill.losses.kd import kl_rows, standardized
from preceptor.distill.losses.method import row_mean, task_loss, teacher_of
from preceptor.distill.losses.mgd import MatchingGuided, assign_channels, similarities
from preceptor.distill.losses.probe import Probe, ProbeDistillation, SinkhornProbe, probe_from, probe_rows
from preceptor.distill.losses.sinkhorn import Sinkhorn, schedule_factor
from preceptor.distill.losses.wcord import WassersteinContrastive


class Trusted(Sinkhorn):
    """The transport term, weighted by how far the teacher, carried over to my classes, knows the labels.

    Free of its second marginal, the plan sends ``p_T`` to ``q = p_T softmax_n(-M_mn / epsilon)``: that is where the
    term pulls the student. The weight of an image is ``q(y) / max_n q(n)``, at `trust_temperature` where that is given;
    the probe's term has the same of the probe's own guess. With `floor` "agreement", the weight of the term falls
    linearly to the share of training images on which the largest ``q`` is that of the label.
    """

    name = "trusted"

    def __init__(
        self, context: Context, *, trust: bool = True, trust_temperature: float | None = None, floor: str = "none",
        probe_weight: float = 0.0, probe_temperature: float = 4.0, probe: Probe | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(context, **options)
        self.trust, self.trusts_probe = trust, trust_temperature is not None
        self.trust_temperature, self.floor = trust_temperature or self.temperature, None
        self.register_buffer("bridge", torch.softmax(-self.cost / self.epsilon, dim=1))
        if floor == "agreement" and context.train_outputs is not None:
            seen = context.train_outputs
            carried = (torch.from_numpy(seen.logits) / self.temperature).softmax(1) @ self.bridge.cpu()
            right = carried.argmax(1) == torch.from_numpy(seen.labels)
            self.floor = float(right.float().mean())
        self.probe_weight, self.probe_temperature = probe_weight, probe_temperature
        if probe_weight:
            fitted = probe_from(context, probe, None)
            self.register_buffer("probe_matrix", fitted.weight)
            self.register_buffer("probe_bias", fitted.bias)

    def factor(self, progress: float | Tensor) -> float | Tensor:
        """What the weights are multiplied with."""
        if self.floor is None:
            return schedule_factor(self.schedule, progress, self.warmup)
        return 1 - (1 - self.floor) * progress

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the weighted transport term, and the probe's where it has a weight."""
        teacher = teacher_of(step).logits
        rows = self.transport(teacher, step.student.logits)
        if self.trust:
            rows = rows * trust_in((teacher / self.trust_temperature).softmax(1) @ self.bridge, step.labels)
        factor = self.factor(step.progress)
        found = {"task": task_loss(step), "sinkhorn": self.weight * factor * row_mean(rows, step.weights)}
        if self.probe_weight:
            told = probe_rows(self.probe_matrix, self.probe_bias, step, self.probe_temperature)
            if self.trust and self.trusts_probe:
                features = teacher_of(step).features.to(self.probe_matrix.dtype)
                guess = functional.linear(features, self.probe_matrix, self.probe_bias)
                told = told * trust_in((guess / self.trust_temperature).softmax(1), step.labels)
            found["probe"] = self.probe_weight * factor * row_mean(told, step.weights)
        return found


def trust_in(guess: Tensor, labels: Tensor) -> Tensor:
    """How probable the label is beside the most probable class, for each row: (B,)."""
    return guess.gather(1, labels[:, None])[:, 0] / guess.amax(1)


class Standardised(Sinkhorn):
    """The transport term between predictions whose logits are equally far spread for every image.

    A teacher is surer of images that it has learnt from than of others, and of its own classes than of strange ones;
    so its logits are as far spread for all. With `sides` "both" the student's are, too, which leaves the spread of its
    own logits to the labels; with "teacher" alone the teacher's get the standard deviation `spread`.
    """

    name = "standardised"

    def __init__(self, context: Context, *, sides: str = "both", spread: float = 1.0, **options: Any) -> None:
        super().__init__(context, **options)
        self.both, self.spread = sides == "both", spread

    def transport(self, teacher_logits: Tensor, student_logits: Tensor) -> Tensor:
        """S_ε of each row: (B,)."""
        student = standardized(student_logits) if self.both else student_logits
        return super().transport(self.spread * standardized(teacher_logits), student)


class StandardisedProbe(Standardised, SinkhornProbe):
    """The term of `Standardised` and that of the probe, whose logits are standardised likewise."""

    name = "standardised-probe"

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Both terms fall alike."""
        features = teacher_of(step).features.to(self.probe_matrix.dtype)
        guess = functional.linear(features, self.probe_matrix, self.probe_bias)
        rows = kl_rows(standardized(guess), standardized(step.student.logits), self.probe_temperature)
        factor = self.probe_weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {**Sinkhorn.terms(self, step), "probe": factor * row_mean(rows, step.weights)}


class MixedTerm(Sinkhorn):
    """The transport term on mixed images beside those of the batch, which alone have labels.

    Mixed images are new to a teacher that has seen the student's own; the cross-entropy never sees them.
    """

    name = "mixed-term"

    def expand(self, images: Tensor) -> Tensor:
        """The batch and as many images that are mixed from its pairs."""
        share = torch.rand((), device=images.device)
        return torch.cat([images, share * images + (1 - share) * images.roll(1, 0)])

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy of the batch, and the mean of the transport term over both halves."""
        rows = self.transport(teacher_of(step).logits, step.student.logits)
        weight = self.weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {"task": task_loss(step), "sinkhorn": weight * row_mean(rows, step.weights.repeat(2))}


class FadingProbe(ProbeDistillation):
    """`probe-kd` whose weight falls to nothing over the training."""

    name = "fading-probe"

    def terms(self, step: Step) -> dict[str, Tensor]:
        """The terms of `probe-kd`, the second with its factor."""
        found = super().terms(step)
        return {**found, "probe": found["probe"] * (1 - step.progress)}


class GraphedWcord(WassersteinContrastive):
    """WCoRD with a fixed number of Sinkhorn iterations, so that no step waits for the host to see the error.

    The costs are cosine distances, from 0 to 2, and epsilon is 0.1: 50 iterations leave a marginal error below the
    method's tolerance of 1e-3 (a test holds this).
    """

    def plan(self, cost: Tensor, weights: Tensor, iterations: int = 50) -> Tensor:
        """The transport between equal masses: (B, B)."""
        kernel = torch.exp(-(cost.detach().nan_to_num() - cost.detach().nan_to_num().amin()) / self.epsilon)
        mass = torch.full_like(kernel[0], 1 / len(kernel))
        right = torch.ones_like(mass)
        for _ in range(iterations):
            left = mass / (kernel @ right)
            right = mass / (kernel.T @ left)
        return left[:, None] * kernel * right[None, :]


class GraphedMgd(MatchingGuided):
    """MGD whose assignment is solved between epochs (and after the first step), where the host may look."""

    @torch.no_grad()
    def _follow(self, level: int, student: Tensor, teacher: Tensor, weights: Tensor) -> None:
        cost: Tensor = getattr(self, f"cost_{level}")
        similar = similarities(student, teacher).sum(dim=0)
        cost += (2 * len(student) - 2 * similar).to(cost.dtype)

    @torch.no_grad()
    def between_epochs(self) -> None:
        """Match channels by the costs since the last time."""
        for level in range(len(self.levels)):
            cost: Tensor = getattr(self, f"cost_{level}")
            getattr(self, f"matches_{level}").copy_(assign_channels(cost))
            cost.zero_()


STAGES: dict[str, tuple[type[Method], ...]] = {
    "refilled": (METHODS["refilled-embedding"], METHODS["refilled-classifier"]),
    "finetune": (METHODS["none"],),  # of the teacher's own network, under a new classifier
    "wcord": (GraphedWcord,),
    "mgd": (GraphedMgd,),
    "trusted": (Trusted,),
    "fading-probe": (FadingProbe,),
    "standardised": (Standardised,),
    "standardised-probe": (StandardisedProbe,),
    "mixed-term": (MixedTerm,),
}
FINETUNE_RATE = 0.1  # of the rate of a training from scratch


# Methods that take a fitted probe.
PROBED = ("probe-kd", "fading-probe", "sinkhorn+probe", "trusted", "standardised-probe")


def stages_of(method: str) -> tuple[type[Method], ...]:
    """The methods that a student goes through one after another."""
    return STAGES[method] if method in STAGES else (METHODS[method],)


def conditional_cost(outputs: Outputs, num_classes: int, epsilon: float = 0.1) -> Tensor:
    """A cost whose transport carries over the empirical P(my class | teacher's class), as LEEP counts it."""
    shares = torch.from_numpy(outputs.logits).softmax(1)  # (N, C_T)
    labels = functional.one_hot(torch.from_numpy(outputs.labels), num_classes).float()
    joint = shares.T @ labels + 0.1
    return -epsilon * (joint / joint.sum(1, keepdim=True)).log()
