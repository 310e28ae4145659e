"""Train a student, with or without a teacher: the one way into the loop."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.data.split import Split
from preceptor.data.task import Task
from preceptor.data.unlabelled import epochs_alone, read_unlabelled
from preceptor.defaults import own_defaults
from preceptor.distill.devices import make_fabric, plain_seed, resolve_device, resolve_precision, rest
from preceptor.distill.losses import METHODS, Method
from preceptor.distill.prepare import settings
from preceptor.distill.recipe import Recipe
from preceptor.distill.result import Result, baseline_note
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.session import Session
from preceptor.distill.teacher_side import TeacherLike, as_given, modes_kept


@own_defaults()
def train(
    task: Task | str | os.PathLike[str],
    *,
    student: str | nn.Module = "wrn-16-1",
    method: str | type[Method] = "none",
    teacher: TeacherLike | None = None,
    start_from: TeacherLike | None = None,
    unlabelled: Split | Task | str | os.PathLike[str] | None = None,
    recipe: Recipe | str = "small",
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    resume: bool = False,
    with_baseline: bool = False,
    baseline_student: str | nn.Module | None = None,
    teacher_classes: Sequence[str] | None = None,
    device: str = "auto",
    cache_teacher: bool = False,
    compile: bool = False,
    graphs: bool = False,
    tensorboard: bool = False,
    checkpoint_every: int | None = None,
    evaluate_every: int = 1,
    write_centers: bool = False,
    trust_code: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Result:
    """Train a student on a task, learning from a teacher by a method.

    Under torchrun the batch is dealt out to the processes, which together train what one would. A method that
    relates the rows of a batch to each other (`relational`) gets the features and logits of all processes.

    Args:
        task: A `Task`, or what one is made from (a folder, an `.npz`, ``glyphs:digits``, …).
        student: An architecture's name, or a module with `outputs`, which is trained in place.
        method: The name of a method, or a `Method` class; "none" is the student alone.
        teacher: A `Teacher`, where one lies (``ZOO/NAME``), the `Result` of a training, or any module with
            `outputs`, which then sees inputs in the student's normalisation. Methods that compare classes by the last
            linear layer, such as `sinkhorn`, look for it in the module's attribute `classifier`.
        start_from: A teacher, in any of these forms, whose weights the student begins with: fine-tuning. The student
            has its architecture; inputs are normalised as it was trained to see them.
        unlabelled: Further samples, whose labels are not looked at: a folder of images, any form of data, a `Task` or
            a `Split`. The terms of the method see them, the cross-entropy does not; each makes about half of an epoch.
        recipe: How to train: a name of `RECIPES` or a `Recipe`.
        out: The run folder; None keeps nothing on the disk.
        seed: Decides weights, data order and augmentation.
        resume: Go on with the run in `out`; a finished one is read and returned.
        with_baseline: Train the plain student as well (in ``out/baseline``) and compare.
        baseline_student: What the baseline trains; None: the student as it came.
        teacher_classes: Class names of a teacher that does not bring its own.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        cache_teacher: Ask the teacher once a sample instead of once a view; refused where views differ.
        compile: Run both networks through torch.compile.
        graphs: Run the step as a CUDA graph.
        tensorboard: Write TensorBoard files into the run folder as well.
        checkpoint_every: Steps between checkpoints; None: at an epoch's end, at most every ten seconds.
        evaluate_every: Epochs between evaluations on the test split (on validation data it is every epoch).
        write_centers: Write centers.safetensors, the class means of its features over the training set: the
            centres of a teacher that the run becomes. The command ``preceptor train`` always writes them.
        trust_code: Let a teacher that came from a ``python:`` source run its code.
        progress: Show a progress bar; None: where standard error is a terminal.
        **options: Settings of the recipe (``epochs=20``) and options of the method (``weight=10``).

    Returns:
        The trained student and what is known about it.
    """
    task = task if isinstance(task, Task) else Task(task)
    seed = plain_seed(seed)
    if resume and out is None:
        raise PreceptorError(
            "resume goes on with the run in a folder and none was named; give it as out (--out)"
        )
    for name, every in (("evaluate_every", evaluate_every), ("checkpoint_every", checkpoint_every)):
        if every is not None and every < 1:
            raise PreceptorError(f"{name} {every} came; at least 1 was expected")
    chosen = settings(method, recipe, options, task.kind)
    precision: Any = resolve_precision(chosen.recipe.precision, device)
    chosen = replace(chosen, recipe=replace(chosen.recipe, precision=precision))
    _check_teacher(chosen.method, teacher, with_baseline, graphs, device, chosen.recipe)
    extra = None if unlabelled is None else extra_samples(unlabelled, chosen.method, cache_teacher)
    fresh = (
        copy.deepcopy(student if baseline_student is None else baseline_student) if with_baseline else student
    )
    running: dict[str, Any] = {
        "resume": resume, "tensorboard": tensorboard, "checkpoint_every": checkpoint_every,
        "evaluate_every": evaluate_every, "progress": progress,
    }  # fmt: skip
    with ExitStack() as end:
        folder = None if out is None else RunFolder(out)
        if folder is not None:
            end.callback(folder.free)
        with _own_settings(device):
            given = None if teacher is None else as_given(teacher, teacher_classes, trust_code)
            session = Session(
                task=task, student=student, settings=chosen, seed=seed, teacher=given,
                fabric=make_fabric(device, chosen.recipe.precision), folder=folder,
                cache_teacher=cache_teacher, compile_networks=compile, graphs=graphs, write_centers=write_centers,
                start=None if start_from is None else as_given(start_from, None, trust_code), unlabelled=extra,
            )  # fmt: skip
            with modes_kept(given):
                result = session.run(**running, finish=not with_baseline)
        rest(session.fabric)
        if with_baseline and result.baseline_accuracy is None:
            result = _with_baseline(session, result, fresh, device=device, **running)
        return result


def _with_baseline(session: Session, result: Result, student: str | nn.Module, **how: Any) -> Result:
    """Train the plain student for as many steps, compare, and finish the session that waited for it."""
    recipe = session.settings.recipe
    if session.unlabelled is not None:
        epochs = epochs_alone(recipe.epochs, session.task.train, session.unlabelled, recipe.batch_size)
        recipe = replace(recipe, epochs=epochs)
    baseline = train(
        session.task, student=student, recipe=recipe, seed=session.seed, compile=session.compile_networks,
        graphs=session.graphs, out=None if session.folder is None else session.folder.path / "baseline", **how,
    )  # fmt: skip
    note = baseline_note(result.accuracy, baseline.accuracy)
    result = replace(result, baseline_accuracy=baseline.accuracy, notes=(*result.notes, note))
    session.finish(result)
    return result


def extra_samples(
    given: Split | Task | str | os.PathLike[str], method: type[Method], cache_teacher: bool = False
) -> Split:
    """The unlabelled samples, where the method has a use for them."""
    check_unlabelled(method)
    if cache_teacher:
        raise PreceptorError("cache_teacher keeps what the teacher says about labelled samples; leave it out")
    if isinstance(given, Task):
        return given.train
    return given if isinstance(given, Split) else read_unlabelled(given)[0]


def check_unlabelled(method: type[Method]) -> None:
    """Refuse unlabelled samples for a method that has no use for them."""
    if not method.uses_unlabelled:
        known = ", ".join(name for name, known in METHODS.items() if known.uses_unlabelled)
        raise PreceptorError(f"method {method.name} learns nothing from unlabelled samples; {known} do")


def _check_teacher(
    method: type[Method],
    teacher: TeacherLike | None,
    with_baseline: bool,
    graphs: bool,
    device: str,
    recipe: Recipe,
) -> None:
    if "teacher" in method.needs and teacher is None:
        raise PreceptorError(
            f"method {method.name} needs a teacher and none was given; pass one or use method none"
        )
    if "teacher" not in method.needs and teacher is not None:
        raise PreceptorError(
            f"method {method.name} takes no teacher and one was given; leave it out or choose a method"
        )
    if with_baseline and method.name == "none":
        raise PreceptorError(
            "with_baseline compares a method with the plain student, and method none is that already"
        )
    if graphs and (resolve_device(device).type != "cuda" or recipe.precision == "16-mixed"):
        raise PreceptorError(
            "graphs needs a CUDA device and precision bf16-mixed or 32-true; run without graphs"
        )
    if graphs and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PreceptorError("graphs works in one process and several were started; run without graphs")


@contextmanager
def _own_settings(device: str) -> Iterator[None]:
    """Training sets torch's generators and chooses kernels by trial; the caller's settings come back."""
    chosen = resolve_device(device)
    with torch.random.fork_rng(devices=[chosen] if chosen.type == "cuda" else []):
        with torch.backends.cudnn.flags(
            enabled=torch.backends.cudnn.enabled,
            benchmark=chosen.type == "cuda",
            deterministic=torch.backends.cudnn.deterministic,
            allow_tf32=torch.backends.cudnn.allow_tf32,
        ):
            yield
