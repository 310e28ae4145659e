"""Methods as the experiments run them: by stages, without waits for the host, and variants under trial."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from preceptor.core import Outputs
from preceptor.distill.losses import METHODS, Context, Method, Step
from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.method import row_mean, task_loss, teacher_of
from preceptor.distill.losses.mgd import MatchingGuided, assign_channels
from preceptor.distill.losses.sinkhorn import Sinkhorn, schedule_factor
from preceptor.distill.losses.wcord import WassersteinContrastive


class Trusted(Sinkhorn):
    """The transport term, each image weighted by how far the teacher, carried over to my classes, knows its label.

    Free of its second marginal, the plan sends ``p_T`` to ``q = p_T softmax_n(-M_mn / epsilon)``: that is where the
    term pulls the student. The weight of an image is ``q(y) / max_n q(n)``.
    """

    name = "trusted"

    def __init__(self, context: Context, **options: object) -> None:
        super().__init__(context, **options)
        self.register_buffer("bridge", torch.softmax(-self.cost / self.epsilon, dim=1))

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the weighted transport term."""
        teacher = teacher_of(step).logits
        carried = (teacher / self.temperature).softmax(1) @ self.bridge
        trust = carried.gather(1, step.labels[:, None])[:, 0] / carried.amax(1)
        rows = self.transport(teacher, step.student.logits) * trust
        weight = self.weight * schedule_factor(self.schedule, step.progress, self.warmup)
        return {"task": task_loss(step), "sinkhorn": weight * row_mean(rows, step.weights)}


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
        similar = torch.einsum("bip,bjp->ij", unit_rows(student.flatten(2)), unit_rows(teacher.flatten(2)))
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
}
FINETUNE_RATE = 0.1  # of the rate of a training from scratch


def stages_of(method: str) -> tuple[type[Method], ...]:
    """The methods that a student goes through one after another."""
    return STAGES[method] if method in STAGES else (METHODS[method],)


def conditional_cost(outputs: Outputs, num_classes: int, epsilon: float = 0.1) -> Tensor:
    """A cost whose transport carries over the empirical P(my class | teacher's class), as LEEP counts it."""
    shares = torch.from_numpy(outputs.logits).softmax(1)  # (N, C_T)
    labels = functional.one_hot(torch.from_numpy(outputs.labels), num_classes).float()
    joint = shares.T @ labels + 0.1
    return -epsilon * (joint / joint.sum(1, keepdim=True)).log()
