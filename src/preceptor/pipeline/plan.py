"""What a run is going to do, settled and checked before anything takes time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from preceptor.core import PreceptorError, Ranking
from preceptor.data import Split, Task
from preceptor.data.task import never_held_out
from preceptor.distill.inputs import cut_to_squares
from preceptor.pipeline.alone import better_views, on_views, plain_attempts, views_to_try, views_told
from preceptor.pipeline.trials import (
    Attempt,
    Trial,
    Way,
    choose_methods,
    choose_recipe,
    further_samples,
    in_order,
)
from preceptor.zoo import Zoo


@dataclass(frozen=True)
class Plan:
    """Which students are trained, on which part of the data, and how."""

    task: Task  # with all its labels
    judged: Task  # the same without the held-out part, which is its test split
    recipe: Any
    ways: Sequence[Way]
    extra: Split | None  # unlabelled samples for the students of teachers
    refit: bool  # once more on all labels, when the choice is made
    options: Mapping[str, Any]  # of the recipe and of the methods
    shared: Mapping[str, Any]  # what else every student is trained with
    views: str | None  # random ones of the images, which the plain student is to try
    told: Sequence[str]  # what there is to say about all this

    @classmethod
    def of(
        cls,
        task: Task,
        *,
        method: str | Sequence[str] | None,
        recipe: Any,
        validation: float,
        refit: bool,
        unlabelled: Split | Task | str | os.PathLike[str] | None,
        options: Mapping[str, Any],
        shared: Mapping[str, Any],
    ) -> Self:
        """Settle what the caller of `run` left open, and refuse what does not go together."""
        if not isinstance(shared["student"], str):
            raise PreceptorError(
                f"a student of {type(shared['student']).__name__} came; run trains several, so name an architecture, "
                "such as wrn-16-1 (distill and train take a module)"
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise PreceptorError(
                "run works in one process and several were started; torchrun is for distill and train"
            )
        smaller, held = task.split_validation(validation, shared["seed"])
        judged = Task.from_splits(
            smaller.train, held, task.classes, f"{task.name} (validation)", judged_by="validation"
        )
        left_open = recipe is None and "augment" not in options
        told, recipe = choose_recipe(recipe, task, options)
        both, methods = choose_methods(method, options)
        ways = [Way.of(name, recipe, options, shared["student"], task) for name in methods]
        extra, known = (None, []) if unlabelled is None else further_samples(unlabelled, ways, task, held)
        size = ways[0].settings.recipe.image_size
        views = views_to_try(task, size) if left_open else None
        squares = cut_to_squares(task.train, task.kind, size)
        said = [*never_held_out(task), *told, *both, *views_told(views, recipe), *known, *squares]
        return cls(task, judged, recipe, ways, extra, refit, options, shared, views, said)

    def to_json(self) -> dict[str, Any]:
        """What is settled, for pipeline.json."""
        return {
            "task": self.task.name,
            "fingerprint": self.task.fingerprint,
            "student": self.shared["student"],
            "seed": self.shared["seed"],
            "methods": [way.method for way in self.ways],
            "refit": self.refit,
            "augment": self.options.get("augment", self.ways[0].settings.recipe.augment),
        }

    def check_zoo(self, zoo: Zoo, names: Sequence[str]) -> None:
        """Refuse a zoo that has no teacher for one of the methods."""
        for way in self.ways:
            way.fitting.check_any(zoo, names)

    def check_leaders(self, zoo: Zoo, leaders: Sequence[str], ranking: Ranking) -> None:
        """Refuse leaders that one of the methods cannot use."""
        for way in self.ways:
            way.fitting.check_all(zoo, leaders, [row.name for row in ranking.rows])

    def alone(self, task: Task) -> list[Attempt]:
        """The students without a teacher, for as many steps as the others have on this task."""
        return plain_attempts(task.train, self.recipe, self.options, self.extra, self.shared, self.views)

    @property
    def tries(self) -> int:
        """How many of the students without a teacher come before it is settled what the others see."""
        return 1 if self.views is None else 2

    def settled(self, trials: Sequence[Trial]) -> tuple[Self, list[str]]:
        """With the views that were better for these students; and what there is to say about it."""
        if self.views is None:
            return self, []
        augment, said = better_views(trials, self.views, self.recipe)
        return replace(self, options={**self.options, "augment": augment}), [said]

    @property
    def later_recipe(self) -> Any:
        """That of the students which come when it is settled what they see."""
        return (
            on_views(self.recipe) if self.views and self.options.get("augment") == self.views else self.recipe
        )

    def taught(self, zoo: Zoo, leaders: Sequence[str], trust_code: bool) -> list[Attempt]:
        """A student for each of the leaders and each method."""
        given = {
            "recipe": self.later_recipe, "unlabelled": self.extra, "trust_code": trust_code,
            **self.shared, **self.options,
        }  # fmt: skip
        return [
            Attempt.by(way.method, name, f"{zoo.url.rstrip('/')}/{name}", given, len(self.ways) > 1)
            for name in leaders
            for way in in_order(self.ways, zoo.card(name).classes, self.task.classes)
        ]
