"""From what the caller gave to a `Job`: student, teacher, method, loaders, optimiser, run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, Outputs, PreceptorError
from preceptor.data.loader import Loader
from preceptor.data.split import Split
from preceptor.data.task import Task
from preceptor.distill.devices import hash_seed, set_generators
from preceptor.distill.inputs import InputSpec, Normalise
from preceptor.distill.losses import METHODS, Context, Method
from preceptor.distill.losses.table import default_options
from preceptor.distill.recipe import RECIPE_FIELDS, Recipe, check_kind, plain_numbers, resolve_recipe
from preceptor.distill.teacher_side import TeacherSide, check_precision, checked_output
from preceptor.models import build
from preceptor.wording import hint

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EVALUATION_BATCH = 512
ABOVE_ZERO = ("temperature", "epsilon", "tolerance", "max_iterations", "queue_size", "width")  # ends of names


@dataclass(frozen=True)
class Settings:
    """Recipe and method options, told apart from one bag of keywords."""

    recipe: Recipe
    method: type[Method]
    options: dict[str, Any]


def settings(
    method: str | type[Method], recipe: Recipe | str, given: Mapping[str, Any], kind: str
) -> Settings:
    """Sort keywords into changes of the recipe and options of the method; refuse what is neither."""
    chosen = method_class(method)
    overrides = {name: value for name, value in given.items() if name in RECIPE_FIELDS}
    options = {name: value for name, value in given.items() if name not in RECIPE_FIELDS}
    resolved = resolve_recipe(recipe, overrides)
    if kind == "vectors" and overrides.get("image_size") is not None:
        raise PreceptorError(
            f"image_size {overrides['image_size']} came and the samples are vectors, which have none; leave it out"
        )
    if kind == "vectors" and "augment" not in overrides:
        resolved = replace(resolved, augment=None)  # a preset's augmentation is for images
    options = plain_numbers({**resolved.method_options.get(chosen.name, {}), **options})
    known = default_options(chosen)
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        names = ", ".join(sorted(known))
        has = f"it has {names}" if names else "it has none"
        raise PreceptorError(
            f"{unknown[0]!r} is neither a setting of a recipe nor an option of method {chosen.name}; "
            f"{hint(unknown[0], [*known, *RECIPE_FIELDS], otherwise=has)}"
        )
    _check_values(chosen, options)
    return Settings(resolved, chosen, options)


def method_class(method: str | type[Method]) -> type[Method]:
    """The method by name, or a class of your own."""
    if isinstance(method, str):
        if method not in METHODS:
            raise unknown_method(method, METHODS)
        return METHODS[method]
    if not isinstance(method, type) or not issubclass(method, Method):
        raise PreceptorError(f"method {method!r} came; a name or a subclass of Method was expected")
    if not isinstance(getattr(method, "name", None), str):
        raise PreceptorError(f'{method.__name__} has no name; give the class one, such as name = "mine"')
    return method


def unknown_method(method: str, known: Iterable[str]) -> PreceptorError:
    """The error of a name that is no method's."""
    names = sorted(known)
    expected = f"expected one of {', '.join(names)}"
    return PreceptorError(f"method {method!r} is unknown; {hint(method, names, otherwise=expected)}")


def _check_values(method: type[Method], options: Mapping[str, Any]) -> None:
    """Refuse values that no training could begin with: a word for a number, a temperature of 0."""
    defaults = default_options(method)
    for name, value in options.items():
        default = defaults[name]
        check_kind(name, value, type(default))
        if not isinstance(default, int | float) or isinstance(default, bool):
            continue
        if name.endswith(ABOVE_ZERO) and value <= 0:
            raise PreceptorError(f"{name} {value} came; a number above 0 was expected")
        if name.endswith("weight") and value < 0:
            raise PreceptorError(f"{name} {value} came; 0 or more was expected")


@dataclass(frozen=True)
class Data:
    """The splits of a task and loaders over them for this process."""

    fabric: Fabric
    spec: InputSpec
    seed: int
    view: int | None = None  # side of the squares that both networks are shown; None: the student's

    def loader(self, split: Split, batch_size: int, *, augment: str = "none", train: bool = False) -> Any:
        """A loader that gives this process its share of each batch: views in training, else the student's inputs."""
        return Loader(
            split, batch_size, seed=self.seed, train=train, augment=augment, device=self.fabric.device,
            image_size=self._side(self.view if train else None), rank=self.fabric.global_rank,
            world_size=self.fabric.world_size,
        )  # fmt: skip

    def whole_loader(self, split: Split) -> Any:
        """A loader that gives this process views of everything, unaugmented and in order."""
        return Loader(
            split, EVALUATION_BATCH, seed=self.seed, train=False, augment="none", device=self.fabric.device,
            image_size=self._side(self.view),
        )  # fmt: skip

    def _side(self, view: int | None) -> int | None:
        return (view or self.spec.shape[-1]) if len(self.spec.shape) == 3 else None

    def few(self, split: Split) -> Tensor:
        """Two images, for the shapes of what the networks give."""
        rows = split.select([0, min(1, len(split) - 1)])
        return next(iter(self.whole_loader(rows).epoch(0))).images


def make_student(student: str | nn.Module, task: Task, spec: InputSpec, seed: int) -> nn.Module:
    """Build the student by name, or check the one that came; a module is trained in place."""
    if isinstance(student, str):
        return build(student, len(task.classes), spec.network_shape, seed=seed)
    if isinstance(student, type):
        raise PreceptorError(
            f"the class {student.__name__} came as student; give a module: {student.__name__}(…)"
        )
    if not isinstance(student, nn.Module) or not callable(getattr(student, "outputs", None)):
        raise PreceptorError(
            f"the student {type(student).__name__} has no outputs(); give an architecture's name or a module "
            "whose outputs(x) returns a ModelOutput (maps, features, logits)"
        )
    if not any(parameter.requires_grad for parameter in student.parameters()):
        raise PreceptorError(
            f"the student {type(student).__name__} has no parameter that may be trained; call requires_grad_() on it"
        )
    check_precision("student", student)
    return student


@torch.no_grad()
def shapes(outputs: Callable[[Tensor], ModelOutput], images: Tensor, network: nn.Module) -> ModelOutput:
    """One dry batch in eval mode; the network's mode is left as it was."""
    was_training = network.training
    network.eval()
    shape = outputs(images)
    network.train(was_training)
    return checked_output(shape, network)


def make_context(
    task: Task,
    split: Split,
    data: Data,
    student: nn.Module,
    normalise: Normalise,
    teacher: TeacherSide | None,
    seed: int,
) -> Context:
    """What the method may know before training."""
    images = data.few(split)
    student_shape = shapes(student.outputs, normalise(images), student)  # type: ignore[arg-type]
    if student_shape.logits.shape[1] != len(task.classes):
        raise PreceptorError(
            f"the student has {student_shape.logits.shape[1]} outputs and the task {len(task.classes)} "
            "classes; give a student with one output a class"
        )
    teacher_shape = None if teacher is None else checked_output(teacher.outputs(images), teacher.module)
    names: tuple[str, ...] = ()
    if teacher is not None and teacher_shape is not None:
        names = teacher.classes(teacher_shape.logits.shape[1])
    return Context(
        student_classes=tuple(task.classes),
        student_shape=student_shape,
        teacher_classes=names,
        teacher_shape=teacher_shape,
        teacher_classifier=None if teacher is None else teacher.classifier,
        teacher_centers=None if teacher is None else teacher.centers,
        train_outputs=None,
        num_train=len(split),
        seed=seed,
    )  # fmt: skip


def make_method(
    chosen: Settings, context: Context, data: Data, split: Split, teacher: TeacherSide | None
) -> tuple[Method, tuple[Tensor, Tensor] | None]:
    """Check the method's needs, let the teacher see the training set once, and build the method.

    Returns:
        The method, and the teacher's features and logits over the training set.
    """
    chosen.method.check(context)
    outputs = None
    if teacher is not None:
        outputs = teacher.over(data.whole_loader(split), len(split))
        _check_finite(*outputs)
        features, logits = (values.cpu().numpy() for values in outputs)
        context = replace(context, train_outputs=Outputs(features, logits, split.labels))
    set_generators(hash_seed(context.seed, 0x4D), data.fabric.device)
    return chosen.method(context, **chosen.options).to(data.fabric.device), outputs


def _check_finite(features: Tensor, logits: Tensor) -> None:
    """A loss of such outputs would look like a training that diverged."""
    bad = ~(features.isfinite().all(dim=1) & logits.isfinite().all(dim=1))  # (N,)
    if bad.any():
        raise PreceptorError(
            f"the teacher's features or logits are NaN or infinite for {int(bad.sum())} of {len(bad)} training "
            "samples; check its weights and how it normalises its inputs, or take another teacher"
        )
