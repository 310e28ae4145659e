"""Which teachers of a zoo a method can use for a task: known from their cards, before any of them is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from preceptor.core import ModelOutput, PreceptorError
from preceptor.data.task import Task
from preceptor.distill.inputs import input_shape
from preceptor.distill.losses import Context, Method
from preceptor.distill.prepare import Settings, shapes
from preceptor.models import build
from preceptor.zoo import Card, Zoo

_ASKING = frozenset({"same-classes", "maps"})  # needs that not every teacher meets


@dataclass(frozen=True)
class Fitting:
    """A method, a task and a student that wait for a teacher."""

    method: type[Method]
    task: Task
    student_shape: ModelOutput
    special: bool  # the method trains its own teacher, which then has what it needs

    @classmethod
    def of(cls, chosen: Settings, student: str, task: Task, special: bool = False) -> Self:
        """Build the student once: a name or a size that will not do is told here."""
        shape = input_shape(task.train, task.kind, chosen.recipe.image_size)
        network = build(student, len(task.classes), shape, seed=0)  # type: ignore[arg-type]
        seen = shapes(network.outputs, torch.zeros((2, *shape)), network)
        return cls(chosen.method, task, seen, special)

    def refusal(self, card: Card) -> str | None:
        """Why the method cannot use this teacher; None where it can."""
        nothing = torch.zeros(0)
        known = ModelOutput(tuple(nothing for _ in card.head.maps), nothing, nothing)
        context = Context(
            student_classes=tuple(self.task.classes), student_shape=self.student_shape,
            teacher_classes=tuple(card.classes), teacher_shape=known, teacher_classifier=None, teacher_centers=None,
            train_outputs=None, num_train=len(self.task.train), seed=0,
        )  # fmt: skip
        try:
            self.method.check(context)
        except PreceptorError as error:
            return str(error)
        return None

    def check_any(self, zoo: Zoo, names: Sequence[str]) -> None:
        """Refuse a zoo in which there is no teacher for the method; cards that cannot be read are let pass."""
        if self.special or not self.method.needs & _ASKING:
            return
        reasons = []
        for name in names:
            try:
                reason = self.refusal(zoo.card(name))
            except PreceptorError:
                return
            if reason is None:
                return
            reasons.append(reason)
        more = f" (and likewise all {len(names)} teachers of {zoo.url})" if len(names) > 1 else ""
        raise PreceptorError(f"{names[0]}{more} does not fit: {reasons[0]}")

    def check_all(self, zoo: Zoo, leaders: Sequence[str], names: Sequence[str]) -> None:
        """Refuse leaders of a ranking that the method cannot use, and name those that it can."""
        if self.special or not self.method.needs & _ASKING:
            return
        for leader in leaders:
            reason = self.refusal(zoo.card(leader))
            if reason is not None:
                others = ", ".join(name for name in names if self._fits(zoo, name))
                hint = f"; or distil from one that fits (preceptor distill): {others}" if others else ""
                raise PreceptorError(f"{leader} leads the ranking and does not fit: {reason}{hint}")

    def _fits(self, zoo: Zoo, name: str) -> bool:
        try:
            return self.refusal(zoo.card(name)) is None
        except PreceptorError:  # its card cannot be read
            return False
