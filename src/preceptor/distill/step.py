"""One optimiser step: both networks forward, the method's terms, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.devices import laid_out
from preceptor.distill.collectives import step_of_all
from preceptor.distill.devices import sum_gradients
from preceptor.distill.inputs import Normalise, label_distribution, mix_up
from preceptor.distill.losses import Method, Step
from preceptor.distill.optimise import MovingAverage
from preceptor.distill.recipe import Recipe
from preceptor.distill.teacher_side import TeacherSide

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class StepInputs:
    """This process's rows of one step. Their number is the same at every step."""

    images: Tensor  # (B, …) in [0, 1]
    labels: Tensor  # (B,)
    indices: Tensor  # (B,)
    weights: Tensor  # (B,) 0 for rows that only fill an epoch's last batch
    rows: Tensor  # () how many rows count over all processes
    mix: Tensor | None  # () mixup's share of the own image


class _Rows(NamedTuple):
    images: Tensor
    labels: Tensor
    targets: Tensor
    weights: Tensor
    indices: Tensor


class TrainingStep:
    """What happens to one batch. Nothing in it waits for the device, so a CUDA graph can hold it."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        recipe: Recipe,
        student: nn.Module,
        method: Method,
        teacher: TeacherSide | None,
        normalise: Normalise,
        optimizer: Any,
        num_classes: int,
        average: MovingAverage | None,
        compile_networks: bool = False,
        labelled: float = 1.0,
    ) -> None:
        self.fabric, self.recipe, self.num_classes = fabric, recipe, num_classes
        self.method, self.student, self.teacher, self.normalise = method, student, teacher, normalise
        self.optimizer, self.average = optimizer, average
        self.labelled = labelled  # the share of rows that have a label
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        outputs: Callable[[Tensor], ModelOutput] = student.outputs  # type: ignore[assignment]
        self.student_outputs = torch.compile(outputs, dynamic=False) if compile_networks else outputs
        if compile_networks and teacher is not None:
            teacher.compile()
        self.names: tuple[str, ...] = ()

    def __call__(self, inputs: StepInputs, progress: float | Tensor) -> Tensor:
        """Do the step.

        Returns:
            (T + 1,) this process's share of the terms (they add up over processes), then its correct rows.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total: Tensor | None = None
        for part in self._parts(inputs):
            terms, rows, correct = self._terms(part, progress)
            # Means count by their rows, so that parts and processes add up to the whole batch.
            values = torch.stack(list(terms.values())) * (rows / inputs.rows)
            self.fabric.backward(values.sum())
            noted = torch.cat([values.detach(), correct[None]])
            total = noted if total is None else total + noted
            self.names = tuple(terms)
        sum_gradients(self.fabric, self.parameters)
        if self.recipe.clip:
            self.fabric.clip_gradients(
                self.method, self.optimizer, max_norm=self.recipe.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        assert total is not None
        return total

    def _parts(self, inputs: StepInputs) -> Iterator[_Rows]:
        """The rows with their label distributions, in parts where the batch does not fit through at once."""
        smoothing = self.recipe.label_smoothing
        targets = label_distribution(inputs.labels, self.num_classes, smoothing, self.labelled)
        images = inputs.images
        if inputs.mix is not None:
            images, targets = mix_up(images, targets, inputs.mix)
        columns = (images, inputs.labels, targets, inputs.weights, inputs.indices)
        for part in zip(*(column.chunk(self.recipe.accumulate) for column in columns), strict=True):
            yield _Rows(*part)

    def _terms(self, rows: _Rows, progress: float | Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The method's terms on these rows, for how many rows they count, and how many the student gets right."""
        views = self.method.expand(rows.images)  # in [0, 1], so that each network normalises its own way
        teacher = None if self.teacher is None else self.teacher.outputs(views, rows.indices)
        seen = laid_out(self.normalise(views), self.student)
        with self.fabric.autocast():
            student = self._ask(seen)
        step = Step(seen, rows.labels, rows.targets, rows.weights, rows.indices, student, teacher, progress)
        sharers = self.fabric.world_size if self.method.relational else 1
        if sharers > 1:
            step = step_of_all(step, maps="maps" in self.method.needs)
        found = self.method(step)
        if not self.names:
            _check_terms(found, self.method)
        terms = {name: value.float() for name, value in found.items()}
        right = student.logits.detach()[: len(rows.labels)].argmax(dim=1) == rows.labels
        return terms, step.weights.sum() / sharers, (right * rows.weights).sum().float() / self.labelled

    def _ask(self, seen: Tensor) -> ModelOutput:
        try:
            return self.student_outputs(seen)
        except ValueError as error:
            if len(seen) > 1:
                raise
            raise PreceptorError(  # as batch norms do, which have no deviation then
                f"the student cannot train on one sample at a time ({error}); choose a batch_size with 2 or more for "
                "each process and part (accumulate)"
            ) from None


def _check_terms(terms: object, method: Method) -> None:
    """Refuse what a method of one's own gives, where its terms could not be added up."""
    if not isinstance(terms, dict) or not terms:
        raise PreceptorError(f"method {method.name} gave {terms!r}; expected its terms by name, one or more")
    for name, value in terms.items():
        if not isinstance(value, Tensor) or value.ndim:
            kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
            raise PreceptorError(
                f"term {name} of method {method.name} is {kind}; expected a tensor of no dimension, such as a mean"
            )
