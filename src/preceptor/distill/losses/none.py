"""No distillation: the student alone."""

from __future__ import annotations

from torch import Tensor

from preceptor.distill.losses.method import Method, task_loss
from preceptor.distill.losses.step import Step


class NoDistillation(Method):
    """Cross-entropy with the labels, the baseline of every comparison."""

    name = "none"
    reference = "the student alone"
    needs = frozenset()

    def terms(self, step: Step) -> dict[str, Tensor]:
        """ℓ(y, f_S(x))."""
        return {"task": task_loss(step)}
