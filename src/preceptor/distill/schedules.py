"""Methods of several trainings: plain code that calls the loop. `distill` is the public way in."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.data.task import Task
from preceptor.defaults import own_defaults
from preceptor.distill.inputs import InputSpec, input_spec
from preceptor.distill.losses import METHODS, Method
from preceptor.distill.prepare import Settings, make_student, settings, shapes, unknown_method
from preceptor.distill.recipe import RECIPE_FIELDS, Recipe, check_hint, resolve_recipe
from preceptor.distill.result import Result
from preceptor.distill.teacher_side import TeacherLike, as_given
from preceptor.distill.train import train
from preceptor.models import build

Out = str | os.PathLike[str] | None


@own_defaults()
def distill(
    student: str | nn.Module,
    task: Task | str | os.PathLike[str],
    teacher: TeacherLike | None = None,
    method: str | type[Method] = "sinkhorn",
    out: Out = None,
    *,
    recipe: Recipe | str = "small",
    **options: Any,
) -> Result:
    """Distil a teacher into a student.

    Args:
        student: An architecture's name, or a module with `outputs`, which is trained in place.
        task: A `Task`, or what one is made from.
        teacher: A `Teacher`, where one lies (``ZOO/NAME``), or any module with `outputs`.
        method: A name of `METHODS` or `SCHEDULES`, or a `Method` class.
        out: The run folder; the earlier trainings of a schedule lie inside it.
        recipe: How to train: a name of `RECIPES` or a `Recipe`.
        **options: Everything else that `train` takes, settings of the recipe and options of the method.

    Returns:
        The trained student and what is known about it.

    Example:
        >>> result = distill("wrn-16-1", "data/", "zoo/wrn-40-2", out="runs/a", epochs=20)  # doctest: +SKIP
    """
    task = task if isinstance(task, Task) else Task(task)
    if isinstance(method, str) and method in SCHEDULES:
        if options.pop("unlabelled", None) is not None:
            raise takes_no_unlabelled(method)
        _check_own(method, options)
        return SCHEDULES[method](student, task, teacher, out, recipe=recipe, **options)
    if isinstance(method, str) and method not in METHODS:
        raise unknown_method(method, {*METHODS, *SCHEDULES})
    return train(task, student=student, method=method, teacher=teacher, recipe=recipe, out=out, **options)


def check_call(method: str, recipe: Recipe | str, options: Mapping[str, Any], kind: str) -> Settings:
    """What `distill` with a teacher would refuse of these, told before anything takes time.

    Args:
        method: A name of `METHODS` or `SCHEDULES`.
        recipe: How to train.
        options: Settings of the recipe and options of the method.
        kind: Of the task, "images" or "vectors".

    Returns:
        Recipe and method as the training that takes these options has them.
    """
    if method not in METHODS and method not in SCHEDULES:
        raise unknown_method(method, {*METHODS, *SCHEDULES})
    own = _check_own(method, options) if method in SCHEDULES else frozenset()
    rest = {name: value for name, value in options.items() if name not in own}
    chosen = settings(_LAST_STAGE.get(method, method), recipe, rest, kind)
    if "teacher" not in chosen.method.needs:
        raise PreceptorError(f"method {method} takes no teacher; choose one that does, such as sinkhorn")
    return chosen


def _check_own(schedule: str, options: Mapping[str, Any]) -> frozenset[str]:
    """The names of the schedule's own options, once those that came are of the right kind."""
    own = frozenset(inspect.signature(SCHEDULES[schedule]).parameters) - _BY_STAGE
    for name, hint in get_type_hints(SCHEDULES[schedule]).items():
        if name in own and name in options:
            check_hint(name, options[name], hint)
    return own


def takes_no_unlabelled(schedule: str) -> PreceptorError:
    """The error of a schedule that was given unlabelled samples."""
    return PreceptorError(
        f"method {schedule} trains in stages, which take no unlabelled samples; leave them out"
    )


def ban(
    student: str | nn.Module,
    task: Task,
    teacher: TeacherLike | None,
    out: Out,
    *,
    generations: int = 3,
    seed: int = 0,
    with_baseline: bool = False,
    **options: Any,
) -> Result:
    """Born-again networks (Furlanello et al. 2018): each generation learns from the one before.

    Without a teacher the first generation is the plain student. Each has its own seed, so its own beginning.
    """
    if generations < 1:
        raise PreceptorError(f"generations {generations} came; at least 1 was expected")
    done: list[Result] = []
    for generation in range(generations):
        last = generation == generations - 1
        result = train(
            task,
            student=student if last else copy.deepcopy(student),
            method="none" if teacher is None else "ban",
            teacher=teacher,
            out=out if last else _inside(out, f"generation-{generation + 1}"),
            seed=seed + generation,
            with_baseline=with_baseline and last and teacher is not None,
            **options,
        )
        done.append(result)
        teacher = result
    return replace(done[-1], stages=tuple(done[:-1]))


def refilled(
    student: str | nn.Module,
    task: Task,
    teacher: TeacherLike | None,
    out: Out,
    *,
    recipe: Recipe | str = "small",
    embedding_epochs: int | None = None,
    embedding_options: dict[str, Any] | None = None,
    with_baseline: bool = False,
    **options: Any,
) -> Result:
    """ReFilled (Ye et al. 2020): first order samples as the teacher does, then learn its local classifiers.

    Both stages follow the recipe, as in the authors' program; `embedding_epochs` makes the first one shorter.
    `embedding_options` are the first stage's, all other options the second's.
    """
    shared = _shared(options)
    fresh = copy.deepcopy(student)
    first_epochs = {} if embedding_epochs is None else {"epochs": embedding_epochs}
    first = train(
        task, student=student, method="refilled-embedding", teacher=teacher, recipe=recipe,
        out=_inside(out, "embedding"), **{**shared, **first_epochs, **(embedding_options or {})},
    )  # fmt: skip
    second = train(
        task, student=first.model, method="refilled-classifier", teacher=teacher, recipe=recipe, out=out,
        with_baseline=with_baseline, baseline_student=fresh, **options,
    )  # fmt: skip
    return replace(second, stages=(first,))


def sftn(
    student: str | nn.Module,
    task: Task,
    teacher: TeacherLike | None,
    out: Out,
    *,
    recipe: Recipe | str = "small",
    teacher_arch: str | None = None,
    teacher_options: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Student-friendly teachers (Park et al. 2021): train the teacher with student branches, then distil it.

    The teacher is trained anew on the student's task: `teacher_arch`, or the architecture of the given one.
    """
    shared = {**_shared(options), "seed": seed}
    arch = teacher_arch or _architecture(teacher, options.get("trust_code", False))
    changes = {name: value for name, value in options.items() if name == "image_size"}
    spec = input_spec(task.train, task.kind, resolve_recipe(recipe, changes).image_size)
    raw = build(arch, len(task.classes), spec.network_shape, seed=seed + 1)
    first = train(
        task, student=raw, method="sftn-teacher", recipe=recipe, out=_inside(out, "teacher"),
        **{**shared, "student_shape": _shape(student, task, spec.shape), **(teacher_options or {})},
    )  # fmt: skip
    second = train(
        task, student=student, method="sftn", teacher=first, recipe=recipe, out=out, seed=seed, **options,
    )  # fmt: skip
    return replace(second, stages=(first,))


def sskd(
    student: str | nn.Module,
    task: Task,
    teacher: TeacherLike | None,
    out: Out,
    *,
    recipe: Recipe | str = "small",
    head_epochs: int | None = None,
    with_baseline: bool = False,
    **options: Any,
) -> Result:
    """SSKD (Xu et al. 2020): train a contrast head on the frozen teacher, then distil with it.

    The first training runs the same method with the student's terms at 0, so that only the head learns; its
    student is thrown away. `head_epochs` makes it shorter than the recipe.
    """
    silent = {"task_weight": 0.0, "kd_weight": 0.0, "rotated_weight": 0.0, "similarity_weight": 0.0}
    first_epochs = {} if head_epochs is None else {"epochs": head_epochs}
    first = train(
        task, student=copy.deepcopy(student), method="sskd", teacher=teacher, recipe=recipe,
        out=_inside(out, "teacher-head"), **{**_shared(options), **first_epochs, **silent},
    )  # fmt: skip
    prefix = "teacher_head."
    head = {key[len(prefix) :]: value for key, value in first.method_state.items() if key.startswith(prefix)}
    second = train(
        task, student=student, method="sskd", teacher=teacher, recipe=recipe, out=out, teacher_head=head,
        with_baseline=with_baseline, **options,
    )  # fmt: skip
    return replace(second, stages=(first,))


def _inside(out: Out, name: str) -> Path | None:
    return None if out is None else Path(out) / name


# What a schedule gives each of its trainings by itself.
_BY_STAGE = frozenset({"task", "student", "method", "teacher", "recipe", "out", "with_baseline", "options"})
_COMMON = frozenset(inspect.signature(train).parameters) - _BY_STAGE | RECIPE_FIELDS


def _shared(options: dict[str, Any]) -> dict[str, Any]:
    """What holds for every training of a schedule: all but the options of its method."""
    return {name: value for name, value in options.items() if name in _COMMON}


def _shape(student: str | nn.Module, task: Task, shape: tuple[int, ...]) -> ModelOutput:
    """Tensors of the shapes that the student gives, without its numbers."""
    network = make_student(student, task, InputSpec(shape, (), ()), 0)
    device = next(network.parameters()).device
    seen = shapes(network.outputs, torch.zeros((2, *shape), device=device), network)  # type: ignore[arg-type]
    maps = tuple(torch.zeros_like(entry) for entry in seen.maps)
    return ModelOutput(maps, torch.zeros_like(seen.features), torch.zeros_like(seen.logits))


def _architecture(teacher: TeacherLike | None, trust_code: bool) -> str:
    module: Any = None if teacher is None else as_given(teacher, None, trust_code).module
    while module is not None and not getattr(module, "arch", ""):
        module = getattr(module, "network", None)  # a zoo's teacher wraps its network
    if module is None:
        raise PreceptorError(
            "method sftn trains its own teacher and does not know of which architecture; give teacher_arch, "
            "such as wrn-40-2"
        )
    return str(module.arch)


# The training that takes a schedule's options, where it has another name.
_LAST_STAGE = {"refilled": "refilled-classifier"}
SCHEDULES: dict[str, Callable[..., Result]] = {"ban": ban, "refilled": refilled, "sftn": sftn, "sskd": sskd}
