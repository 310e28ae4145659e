"""How long and with what a network is trained: plain presets, and how a call changes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from preceptor.core import PreceptorError
from preceptor.wording import hint

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["step", "cosine", "constant"]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class Recipe:
    """The settings of one training. Milestones are shares of it, so they move along with `epochs`."""

    epochs: int = 60
    min_steps: int = 0  # optimiser steps: a small data set is gone through more often
    batch_size: int = 64  # rows of one optimiser step over all processes
    optimizer: Optimizer = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    lr_schedule: Schedule = "cosine"
    milestones: tuple[float, ...] = ()
    gamma: float = 0.2  # the factor at each milestone
    warmup_epochs: float = 0.0
    augment: str | None = None  # None: nothing
    mixup: float = 0.0  # alpha of the Beta distribution
    mixup_until: float = 1.0  # the share of `epochs` after which images are left as they are
    label_smoothing: float = 0.0
    ema: float = 0.0  # decay of the weights' moving average; 0: none
    clip: float = 0.0  # largest gradient norm; 0: no limit
    accumulate: int = 1  # a step's batch goes through the network in this many parts
    precision: Precision = "auto"  # bf16-mixed on CUDA, 32-true elsewhere
    patience: int = 0  # epochs without a better validation accuracy before stopping; 0: train to the end
    validation_fraction: float = 0.1  # taken from the training set where patience asks for it
    image_size: int | None = None  # needed where images differ in size
    method_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for config.json."""
        values = asdict(self)
        values["milestones"] = list(self.milestones)
        return values


_PAPER = Recipe(
    epochs=200, batch_size=256, lr=0.1, lr_schedule="step", gamma=0.2, momentum=0.9, weight_decay=5e-4
)  # Sec. 6.1.2
_CIFAR = replace(_PAPER, milestones=(0.25, 0.5, 0.75), augment="pad-crop-flip")
# Mixed images in the first half lift the student at every overlap, alone and with a teacher (docs/results.md, Fig. 5).
_CIFAR_MIXED = replace(_CIFAR, mixup=1.0, mixup_until=0.5)
_CUB = replace(
    _PAPER, batch_size=128, milestones=(0.75, 0.85, 0.9), augment="random-resized-crop", image_size=224
)
# Sec. 6.1.2 in full, whatever the method's defaults become. Both sides on the unit sphere: Eq. (6) and (8) taken
# literally mix a sphere with raw features.
_LITERAL = {"temperature": 3.0, "epsilon": 0.1, "cost": "teacher", "centers": "classifier", "normalize": True,
            "center": False, "value": "entropic", "schedule": "constant", "scale_cost": "none"}  # fmt: skip
_CIFAR_PAPER = replace(_CIFAR, method_options={"sinkhorn": {"weight": 10.0, **_LITERAL}})
_STEADY = {"weight": 10.0, "temperature": 3.0, "schedule": "constant"}

_SMALL = Recipe(epochs=60, batch_size=64, lr=0.05, nesterov=True, warmup_epochs=1.0)
# For few labels and a teacher: mixed images are ever new, and the teacher has an answer to each of them (Beyer et al.
# 2022, "A good teacher is patient and consistent"). The student alone wants images as they are at the end. The probe
# then gains by a term that does not fall.
_PATIENT = replace(
    _SMALL,
    epochs=180,
    min_steps=1500,
    mixup=1.0,
    mixup_until=0.75,
    method_options={"sinkhorn+probe": _STEADY},
)
# Random views of photographs are ever new as well, and a student goes on learning from them for long: four times the
# steps were worth more than the teacher (docs/when-it-helps.md).
_PHOTOGRAPHS = replace(_PATIENT, min_steps=6000, augment="random-resized-crop-flip")

RECIPES: dict[str, Recipe] = {
    "cifar100": _CIFAR_MIXED,
    "cub": _CUB,
    "paper": _CIFAR_PAPER,
    "cifar100-paper": _CIFAR_PAPER,
    "cub-paper": replace(_CUB, method_options={"sinkhorn": {"weight": 100.0, **_LITERAL}}),
    "small": _SMALL,
    "mixed": replace(_SMALL, mixup=1.0, mixup_until=0.5),  # for many labels (docs/choosing.md)
    "patient": _PATIENT,
    "photographs": _PHOTOGRAPHS,
    "finetune": replace(_SMALL, lr=0.005),  # for a network that starts from a teacher's weights
    "quick": Recipe(epochs=10, batch_size=64, lr=0.05, nesterov=True),
    "adamw": Recipe(
        epochs=60, batch_size=64, optimizer="adamw", lr=1e-3, weight_decay=0.05, warmup_epochs=1.0
    ),
}

RECIPE_FIELDS = frozenset(entry.name for entry in fields(Recipe))


def plain_numbers(value: Any) -> Any:
    """The same with numpy's numbers as Python's, which JSON can hold; also inside lists and settings by name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: plain_numbers(entry) for name, entry in value.items()}
    return type(value)(map(plain_numbers, value)) if type(value) in (list, tuple) else value


def resolve_recipe(recipe: Recipe | str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe by name, or as given, with single settings changed and everything checked."""
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            expected = f"expected one of {', '.join(RECIPES)}"
            raise PreceptorError(f"recipe {recipe!r} is unknown; {hint(recipe, RECIPES, otherwise=expected)}")
        recipe = RECIPES[recipe]
    if not isinstance(recipe, Recipe):
        raise PreceptorError(
            f"recipe {recipe!r} came; a name or a Recipe was expected, and single settings by themselves: epochs=10"
        )
    if overrides:
        unknown = sorted(set(overrides) - RECIPE_FIELDS)
        if unknown:
            raise PreceptorError(f"a recipe has no setting {unknown}; it has {sorted(RECIPE_FIELDS)}")
        recipe = replace(recipe, **overrides)
        if "mixup_until" in overrides and not recipe.mixup:
            raise PreceptorError("mixup_until needs a mixup above 0; give its alpha as well, such as mixup=1")
        if "epochs" in overrides and "min_steps" not in overrides:
            recipe = replace(recipe, min_steps=0)  # whoever names a number of epochs gets that many
    recipe = replace(recipe, **{name: plain_numbers(getattr(recipe, name)) for name in RECIPE_FIELDS})
    _check(recipe)
    return recipe


def check_kind(name: str, value: Any, kind: type) -> None:
    """Refuse a setting that is not of the kind that its default is; a whole number may stand for any number."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    if kind not in words:
        return
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    right = {bool: isinstance(value, bool), int: number and isinstance(value, Integral), float: number}
    if not right.get(kind, isinstance(value, str)):
        raise PreceptorError(f"{name} {value!r} came; {words[kind]} was expected")


def check_hint(name: str, value: Any, hint: Any) -> None:
    """Refuse a setting that is not of the kind that its annotation says."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if value is None and type(None) in get_args(hint):
        return
    kind = kinds[0] if len(kinds) == 1 else hint
    if get_origin(kind) in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise PreceptorError(
                f'{name} {value!r} came; settings by name were expected, such as {{"epochs": 10}}'
            )
        return
    check_kind(name, value, kind)


def _check_kinds(recipe: Recipe) -> None:
    for name, kind in get_type_hints(Recipe).items():
        check_hint(name, getattr(recipe, name), kind)
    if not isinstance(recipe.milestones, tuple | list):
        raise PreceptorError(
            f"milestones {recipe.milestones!r} came; a list was expected, such as [0.5, 0.75]"
        )
    for milestone in recipe.milestones:
        check_kind("the milestone", milestone, float)


def _check(recipe: Recipe) -> None:
    _check_kinds(recipe)
    hints = get_type_hints(Recipe)
    for name in ("optimizer", "lr_schedule", "precision"):
        value, allowed = getattr(recipe, name), get_args(hints[name])
        if value not in allowed:
            raise PreceptorError(f"{name} {value!r} is unknown; expected one of {', '.join(allowed)}")
    for name in ("epochs", "batch_size", "accumulate", "image_size"):
        if getattr(recipe, name) is not None and getattr(recipe, name) < 1:
            raise PreceptorError(f"{name} {getattr(recipe, name)} came; at least 1 was expected")
    for name in ("lr", "min_steps", "mixup", "clip", "patience", "warmup_epochs", "weight_decay"):
        if getattr(recipe, name) < 0:
            raise PreceptorError(f"{name} {getattr(recipe, name)} came; 0 or more was expected")
    for name in ("ema", "label_smoothing", "validation_fraction"):
        if not 0 <= getattr(recipe, name) < 1:
            raise PreceptorError(f"{name} {getattr(recipe, name)} came; expected from 0 to below 1")
    if not 0 < recipe.mixup_until <= 1:
        raise PreceptorError(
            f"mixup_until {recipe.mixup_until} came; expected above 0 and up to 1 (all of the training)"
        )
    if any(not 0 < milestone < 1 for milestone in recipe.milestones):
        raise PreceptorError(
            f"milestones {recipe.milestones} came; expected shares of the training, such as 0.5"
        )
    if recipe.patience and not recipe.validation_fraction:
        raise PreceptorError("patience needs a validation split; give a validation_fraction above 0")
    if recipe.batch_size % recipe.accumulate:
        raise PreceptorError(
            f"batch_size {recipe.batch_size} cannot go in {recipe.accumulate} equal parts; "
            "choose accumulate so that it divides batch_size"
        )


def lengthened(recipe: Recipe, samples: int) -> Recipe:
    """The recipe with as many epochs as its fewest steps take on so many samples."""
    steps = math.ceil(samples / recipe.batch_size)
    return replace(recipe, epochs=max(recipe.epochs, math.ceil(recipe.min_steps / steps)))


def mixes_at(recipe: Recipe, step: int, steps_per_epoch: int) -> bool:
    """Whether images are mixed up at optimiser step `step`."""
    return recipe.mixup > 0 and step < recipe.mixup_until * recipe.epochs * steps_per_epoch


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """The rate of optimiser step `step`: a pure function, so that resuming needs no scheduler state."""
    warmup = recipe.warmup_epochs * steps_per_epoch
    if step < warmup:
        return recipe.lr * (step + 1) / (math.ceil(warmup) + 1)
    if recipe.lr_schedule == "constant":
        return recipe.lr
    if recipe.lr_schedule == "step":
        epoch = step // steps_per_epoch
        passed = sum(epoch >= round(share * recipe.epochs) for share in recipe.milestones)
        return recipe.lr * recipe.gamma**passed
    total = recipe.epochs * steps_per_epoch
    share = (step - warmup) / max(total - warmup, 1)
    return recipe.lr * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
