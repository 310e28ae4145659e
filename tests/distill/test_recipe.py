from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.distill.losses import METHODS
from preceptor.distill.losses.table import default_options
from preceptor.distill.prepare import settings
from preceptor.distill.recipe import RECIPE_FIELDS, RECIPES, Recipe, learning_rate, mixes_at, resolve_recipe
from preceptor.distill.train import train


def rates(recipe: Recipe, steps_per_epoch: int) -> list[float]:
    return [learning_rate(recipe, epoch * steps_per_epoch, steps_per_epoch) for epoch in range(recipe.epochs)]


@pytest.mark.parametrize(("name", "drops"), [("cifar100", (50, 100, 150)), ("cub", (150, 170, 180))])
def test_the_papers_schedules(name: str, drops: tuple[int, ...]) -> None:
    recipe = RECIPES[name]
    assert (recipe.epochs, recipe.lr, recipe.momentum, recipe.weight_decay) == (200, 0.1, 0.9, 5e-4)
    assert recipe.batch_size == {"cifar100": 256, "cub": 128}[name]
    expected = [0.1 * 0.2 ** sum(epoch >= drop for drop in drops) for epoch in range(200)]
    assert rates(recipe, 7) == pytest.approx(expected)


def test_mixing_ends_with_its_share_of_the_training() -> None:
    recipe = resolve_recipe("cifar100", {"epochs": 3})
    assert [mixes_at(recipe, step, 5) for step in range(15)] == [True] * 8 + [False] * 7
    assert not any(mixes_at(resolve_recipe(recipe, {"mixup": 0.0}), step, 5) for step in range(15))
    patient = resolve_recipe("patient", {"epochs": 4})
    assert [mixes_at(patient, step, 5) for step in range(20)] == [True] * 15 + [False] * 5
    to_the_end = resolve_recipe("patient", {"epochs": 3, "mixup_until": 1.0})
    assert all(mixes_at(to_the_end, step, 5) for step in range(15))


def test_the_papers_own_recipe_mixes_nothing() -> None:
    assert RECIPES["cifar100"].mixup
    assert not RECIPES["paper"].mixup
    assert settings("none", "cifar100", {"mixup": 0.0}, "images").recipe.augment == RECIPES["paper"].augment


def test_milestones_move_with_the_epochs() -> None:
    assert rates(resolve_recipe("cifar100", {"epochs": 4}), 3) == pytest.approx([0.1, 0.02, 0.004, 0.0008])


def test_cosine_with_warm_up() -> None:
    recipe = Recipe(epochs=10, lr=1.0, lr_schedule="cosine", warmup_epochs=2)
    assert learning_rate(recipe, 0, 10) == pytest.approx(1 / 21)
    assert learning_rate(recipe, 19, 10) == pytest.approx(20 / 21)
    assert learning_rate(recipe, 20, 10) == pytest.approx(1.0)
    assert learning_rate(recipe, 60, 10) == pytest.approx(0.5)
    assert learning_rate(recipe, 99, 10) == pytest.approx(0.5 * (1 + math.cos(math.pi * 79 / 80)))


@pytest.mark.parametrize(("recipe", "weight"), [("paper", 10.0), ("cub-paper", 100.0)])
def test_the_papers_recipes_have_its_settings_of_the_method(recipe: str, weight: float) -> None:
    options = settings("sinkhorn", recipe, {}, "images").options
    assert (options["weight"], options["temperature"], options["schedule"]) == (weight, 3.0, "constant")
    assert settings("sinkhorn", recipe, {"weight": 3.0}, "images").options == {**options, "weight": 3.0}
    assert settings("sinkhorn+probe", recipe, {}, "images").options == {}


def test_keywords_are_sorted_into_recipe_and_method() -> None:
    chosen = settings("sinkhorn", "small", {"epochs": 3, "weight": 5.0}, "images")
    assert chosen.recipe.epochs == 3
    assert chosen.options == {"weight": 5.0}


def test_a_presets_augmentation_is_for_images() -> None:
    assert settings("none", "cifar100", {}, "vectors").recipe.augment is None
    assert settings("none", "cifar100", {"augment": "noise"}, "vectors").recipe.augment == "noise"


@pytest.mark.parametrize("name", METHODS)
def test_no_option_of_a_method_is_taken_for_something_else(name: str) -> None:
    others = RECIPE_FIELDS | set(inspect.signature(train).parameters)
    assert not default_options(METHODS[name]).keys() & others


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resolve_recipe("cifar"), "recipe 'cifar' is unknown; .*did you mean 'cifar100'"),
        (lambda: resolve_recipe("small", {"epoch": 3}), r"a recipe has no setting \['epoch'\]"),
        (lambda: resolve_recipe("small", {"optimizer": "adam"}), "optimizer 'adam' is unknown; .* sgd"),
        (lambda: resolve_recipe("small", {"epochs": 0}), "epochs 0 came; at least 1"),
        (lambda: resolve_recipe("small", {"min_steps": -1}), "min_steps -1 came; 0 or more was expected"),
        (lambda: resolve_recipe("small", {"ema": 1.0}), "ema 1.0 came; expected from 0 to below 1"),
        (lambda: resolve_recipe("small", {"milestones": (50,)}), "shares of the training"),
        (lambda: resolve_recipe("small", {"mixup_until": 0.5}), "mixup_until needs a mixup above 0; .* mixup=1"),
        (lambda: resolve_recipe("patient", {"mixup_until": 0}), "mixup_until 0 came; expected above 0 and up to 1"),
        (lambda: resolve_recipe("patient", {"mixup_until": 2.0}), "mixup_until 2.0 came; expected above 0"),
        (lambda: resolve_recipe("small", {"accumulate": 3}), "cannot go in 3 equal parts"),
        (lambda: settings("sinkhorn", "small", {"wieght": 1}, "images"), "did you mean 'weight'"),
        (lambda: settings("kdd", "small", {}, "images"), "method 'kdd' is unknown; .*did you mean 'kd'"),
    ],
)  # fmt: skip
def test_refusals(call, message: str) -> None:
    with pytest.raises(PreceptorError, match=message):
        call()


@pytest.mark.parametrize(
    ("method", "given", "sentence"),
    [
        ("sinkhorn", {"weight": "abc"}, "weight 'abc' came; a number was expected"),
        ("sinkhorn", {"weight": True}, "weight True came; a number was expected"),
        ("sinkhorn", {"weight": math.nan}, "weight nan came; a number was expected"),
        ("sinkhorn", {"weight": -3}, "weight -3 came; 0 or more was expected"),
        ("sinkhorn", {"epsilon": 0}, "epsilon 0 came; a number above 0 was expected"),
        ("sinkhorn+probe", {"probe_temperature": 0}, "probe_temperature 0 came; a number above 0 was expected"),
        ("sinkhorn", {"center": 1}, "center 1 came; true or false was expected"),
        ("sinkhorn", {"schedule": 3}, "schedule 3 came; a word was expected"),
        ("sinkhorn", {"max_iterations": 1.5}, "max_iterations 1.5 came; a whole number was expected"),
        ("rkd", {"angle_weight": "x"}, "angle_weight 'x' came; a number was expected"),
        ("none", {"epochs": "x"}, "epochs 'x' came; a whole number was expected"),
        ("none", {"lr": "fast"}, "lr 'fast' came; a number was expected"),
        ("none", {"image_size": 0}, "image_size 0 came; at least 1 was expected"),
        ("none", {"augment": 4}, "augment 4 came; a word was expected"),
        ("none", {"milestones": 0.5}, r"milestones 0.5 came; a list was expected, such as \[0.5, 0.75\]"),
        ("none", {"milestones": ["x"]}, "the milestone 'x' came; a number was expected"),
        ("none", {"method_options": 3}, 'method_options 3 came; settings by name were expected, such as .*'),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_before_training(
    method: str, given: dict, sentence: str
) -> None:
    with pytest.raises(PreceptorError, match=f"^{sentence}$"):
        settings(method, "small", given, "images")


def test_whole_numbers_and_numpys_pass_for_numbers() -> None:
    given = {"weight": 30, "temperature": np.float32(6), "center": False, "epochs": np.int64(2), "lr": 1}
    assert settings("sinkhorn+probe", "small", given, "images").options["weight"] == 30


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_own_defaults_are_not_refused(name: str) -> None:
    settings(name, "small", default_options(METHODS[name]), "images")
