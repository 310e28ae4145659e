"""The students of a run without a teacher: by which recipes, and on which views of the images.

Teachers are held against the best of them: a student that was spoilt would make any teacher look good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preceptor.data import Split, Task
from preceptor.data.augment import LARGE, usual_views
from preceptor.data.unlabelled import epochs_alone
from preceptor.distill.recipe import RECIPE_FIELDS, RECIPES, resolve_recipe
from preceptor.distill.train import train
from preceptor.pipeline.trials import MIXED, PATIENT, PHOTOGRAPHS, SHORT, Attempt, Trial

PLAIN = "plain"
# Recipes by which a student without a teacher may do worse, and those by which it is trained as well.
_OTHER = {PATIENT: MIXED, PHOTOGRAPHS: MIXED, MIXED: SHORT}
_ON_VIEWS = {PATIENT: PHOTOGRAPHS}  # random views ask for more steps
AS_THEY_ARE = "none"  # of augmentations
WORDS = {
    "random-resized-crop-flip": "random crops of the images, mirrored now and then,",
    "pad-crop-flip": "shifted and mirrored images",
}


def views_to_try(task: Task, image_size: int | None) -> str | None:
    """Random views, for a caller of `run` who left them open: held-out images are asked whether they do any good."""
    if task.kind != "images":
        return None
    shape = task.train.image_shape  # None where sizes differ
    return usual_views(task.train.channels, image_size or (min(shape[1:]) if shape else LARGE))


def views_told(views: str | None, recipe: Any) -> list[str]:
    """That they are to be tried, by which recipe."""
    if views is None:
        return []
    longer, by, settles = on_views(recipe), "", "augment (-o augment=none)"
    if longer != recipe:
        by, settles = f" by the {longer} recipe, which takes longer,", f"--recipe {longer} or -o augment=none"
    return [
        f"the images are in colour: held-out ones decide whether students see {WORDS[views]}{by} or images as they "
        f"are; {settles} settles it"
    ]


def on_views(recipe: Any) -> Any:
    """The recipe of students that see random views, where one would take this recipe for images as they are."""
    return _ON_VIEWS.get(recipe, recipe) if isinstance(recipe, str) else recipe


def better_views(trials: Sequence[Trial], views: str, recipe: Any) -> tuple[str, str]:
    """The augmentation by which the plain student was better, at a draw none; and what there is to say."""
    whole, seen = (100 * one.validation_accuracy for one in trials)
    if seen > whole:
        longer = on_views(recipe)
        by = "" if longer == recipe else f", recipe={longer}"
        return views, (
            f"on {WORDS[views]} the plain student is better ({seen:.1f} % on validation data, {whole:.1f} % on images "
            f"as they are): so all others see them, too (augment={views}{by})"
        )
    return AS_THEY_ARE, (
        f"{WORDS[views]} do not help the plain student ({seen:.1f} % on validation data, {whole:.1f} % on images as "
        "they are): students of teachers see images as they are"
    )


def in_which_ways(recipe: Any, other: str | None, views: str | None) -> str:
    """How often the student without a teacher is trained, if more than once, and why."""
    ways = [f"by the recipes {recipe} and {other}"] if other else []
    longer = on_views(recipe)
    by = "" if longer == recipe else f" by the {longer} recipe"
    ways += [f"once on random views of the images{by}"] if views else []
    times = "three times" if len(ways) == 2 else "twice"
    return f" ({times}: {', '.join(ways)})" if ways else ""


def other_recipe(recipe: Any, options: Mapping[str, Any]) -> str | None:
    """By which recipe the plain student is trained beside this one, if by any; unmixed where nothing is to be mixed."""
    other = _OTHER.get(recipe) if isinstance(recipe, str) else None
    if other is None or options.get("mixup") != 0:
        return other
    return None if other == SHORT else SHORT  # without mixing, `MIXED` is the short recipe itself


def plain_attempts(
    labelled: Split,
    recipe: Any,
    options: Mapping[str, Any],
    extra: Split | None,
    shared: Mapping[str, Any],
    views: str | None = None,
) -> list[Attempt]:
    """The student without a teacher, on random views as well where these are to be tried, and by another recipe.

    The other recipe is one that may do it more good: that would be no teacher's merit. It comes last and sees what
    `options` say of views, which by then may have been settled.
    """
    own = _recipe_part(options)
    ways: dict[str, dict[str, Any]] = {PLAIN: {"recipe": recipe, **own}}
    if views is not None:
        ways[PLAIN]["augment"] = AS_THEY_ARE
        ways[f"{PLAIN}-views"] = {"recipe": on_views(recipe), **own, "augment": views}
    if other := other_recipe(recipe, options):
        kept = {name: value for name, value in own.items() if name not in ("mixup", "mixup_until")}
        ways[f"{PLAIN}-{other}"] = {"recipe": other, "augment": RECIPES[recipe].augment, **kept}
    return [
        Attempt(name, None, "none", train, {**shared, **_with_as_many_steps(way, labelled, extra)})
        for name, way in ways.items()
    ]


def _with_as_many_steps(way: dict[str, Any], labelled: Split, extra: Split | None) -> dict[str, Any]:
    """As many as students have that see unlabelled samples, too: they would gain by their number alone."""
    if extra is None:
        return way
    recipe = resolve_recipe(way["recipe"], {name: value for name, value in way.items() if name != "recipe"})
    epochs = epochs_alone(recipe.epochs, labelled, extra, recipe.batch_size)
    return way | {"epochs": epochs, "min_steps": recipe.min_steps}


def _recipe_part(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are settings of the recipe: the plain student has no method to take the others."""
    return {name: value for name, value in options.items() if name in RECIPE_FIELDS}
