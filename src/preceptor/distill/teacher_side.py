"""The teacher's half of a step: the view of both networks through the teacher's own preprocessing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.devices import in_parts, laid_out
from preceptor.distill.inputs import InputSpec, Normalise
from preceptor.distill.losses import Method
from preceptor.distill.recipe import Recipe
from preceptor.distill.result import Result
from preceptor.wording import counted
from preceptor.zoo import Preprocessing, load_teacher

TeacherLike = nn.Module | str | os.PathLike[str] | Result


@dataclass(frozen=True)
class GivenTeacher:
    """A teacher as the caller gave it."""

    module: nn.Module
    classes: tuple[str, ...] | None
    preprocessing: Preprocessing | None  # None: inputs come in the student's normalisation
    place: str | None  # ZOO/NAME

    @property
    def side(self) -> int:
        """Side of the images that it can make use of; 0 where it takes what the student takes."""
        seen = self.preprocessing
        return 0 if seen is None or len(seen.input_size) == 1 else max(seen.resize or 0, *seen.input_size[1:])

    def reference(self) -> dict[str, Any]:
        """What identifies this teacher in config.json."""
        card = getattr(self.module, "card", None)
        if card is not None:
            return {"name": card.name, "sha256": card.weights_hash, "from": self.place}
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return {
            "name": getattr(self.module, "arch", "") or type(self.module).__name__,
            "sha256": digest.hexdigest(),
        }


def as_given(teacher: TeacherLike, classes: Sequence[str] | None, trust_code: bool = False) -> GivenTeacher:
    """Read a teacher from its zoo, or take the module or the finished training as it is."""
    if isinstance(teacher, Result):
        config = teacher.config
        seen = Preprocessing.for_size(config["input_shape"], config["mean"], config["std"])
        return GivenTeacher(teacher.model, tuple(classes or config["classes"]), seen, None)
    place = os.fspath(teacher) if isinstance(teacher, str | os.PathLike) else None
    module = teacher if place is None else load_teacher(place, trust_code=trust_code)
    if not isinstance(module, nn.Module):
        raise PreceptorError(
            f"a teacher of {type(module).__name__} came; expected ZOO/NAME (such as ranking.best), a Teacher, a Result "
            "or a module with outputs()"
        )
    names = classes if classes is not None else getattr(module, "classes", None)
    own: Preprocessing | None = getattr(module, "preprocessing", None)
    return GivenTeacher(module, None if names is None else tuple(names), own, place)


@contextmanager
def modes_kept(given: GivenTeacher | None) -> Iterator[None]:
    """Teachers are asked in eval mode; the caller's module has its own modes back afterwards."""
    before = [] if given is None else [(part, part.training) for part in given.module.modules()]
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def check_precision(side: str, network: nn.Module) -> None:
    """Refuse a network whose weights are not float32: what flows between the networks is."""
    other = {str(p.dtype) for p in network.parameters() if p.is_floating_point() and p.dtype != torch.float32}
    if other:
        raise PreceptorError(
            f"the {side} {type(network).__name__} has weights of {', '.join(sorted(other))} and float32 was expected; "
            "call float() on it (half precision is a setting of the recipe)"
        )


def checked_output(output: object, network: nn.Module) -> ModelOutput:
    """What a network's outputs(x) gave, where that is what it has to give."""
    if not isinstance(output, ModelOutput):
        raise PreceptorError(
            f"outputs(x) of {type(network).__name__} gave a {type(output).__name__}; expected a "
            "preceptor.core.ModelOutput (maps, features, logits)"
        )
    return output


def joined(parts: Sequence[ModelOutput]) -> ModelOutput:
    """The outputs of parts of a batch as those of the whole."""
    maps = zip(*(part.maps for part in parts), strict=True)
    features, logits = (torch.cat([getattr(part, name) for part in parts]) for name in ("features", "logits"))
    return ModelOutput(tuple(map(torch.cat, maps)), features, logits)


class TeacherSide:
    """Any network with `outputs`, read only: a `Teacher` of a zoo, a trained student, your own module."""

    def __init__(self, given: GivenTeacher, *, normalise: Normalise, autocast: Callable[[], Any]) -> None:
        module = given.module
        if not callable(getattr(module, "outputs", None)):
            raise PreceptorError(
                f"the teacher {type(module).__name__} has no outputs(); give a teacher of a zoo, a network "
                "of preceptor.models, or a module whose outputs(x) returns a ModelOutput"
            )
        if not hasattr(module, "card"):
            check_precision("teacher", module)
        self.module = module.eval()
        self.autocast = autocast
        self.given = given
        self._fit, self._normalise = _in_two(given.preprocessing, normalise)
        self.classifier = _last_layer(module)
        centers = getattr(module, "centers", None)
        stored = getattr(getattr(module, "card", None), "centers_source", "data") != "classifier"
        self.centers: Tensor | None = centers.detach() if isinstance(centers, Tensor) and stored else None
        self._takes_maps = hasattr(module, "card")  # a zoo's teacher can leave its feature maps out
        self.wants_maps = True
        self._outputs: Callable[..., ModelOutput] = module.outputs  # type: ignore[assignment]
        self._cache: tuple[Tensor, Tensor] | None = None

    def classes(self, count: int) -> tuple[str, ...]:
        """The names of its `count` classes; those of a bare module are nobody else's."""
        names = self.given.classes
        if names is None:
            return tuple(f"teacher class {number}" for number in range(count))
        if len(names) != count:
            raise PreceptorError(
                f"the teacher has {counted(count, 'logit')} and {counted(len(names), 'class name')} came; give one each"
            )
        return names

    def compile(self) -> None:
        """Run the network through torch.compile."""
        self._outputs = torch.compile(self._outputs, dynamic=False)

    def inputs(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as this network wants them."""
        return laid_out(
            self._normalise(images if self._fit is None else self._fit.apply(images)), self.module
        )

    @torch.no_grad()
    def outputs(self, images: Tensor, indices: Tensor | None = None) -> ModelOutput:
        """What the teacher says about images in [0, 1], or about the cached rows at `indices`."""
        if self._cache is not None and indices is not None:
            features, logits = self._cache
            return ModelOutput((), features[indices], logits[indices])
        with self.autocast():
            return self._ask(images, self.wants_maps)

    def _ask(self, images: Tensor, maps: bool) -> ModelOutput:
        options = {"maps": maps} if self._takes_maps else {}
        found = [self._outputs(part, **options) for part in in_parts(self.inputs(images))]
        return found[0] if len(found) == 1 else joined(found)

    @torch.no_grad()
    def over(self, loader: Any, count: int) -> tuple[Tensor, Tensor]:
        """Features (N, d) and logits (N, C_T) over a loader without augmentation, in full precision."""
        features: Tensor | None = None
        logits: Tensor | None = None
        for batch in loader.epoch(0):
            out = self._ask(batch.images, maps=False)
            if features is None or logits is None:
                features = torch.zeros(count, out.features.shape[1], device=out.features.device)
                logits = torch.zeros(count, out.logits.shape[1], device=out.logits.device)
            counted = batch.weights > 0
            features[batch.indices[counted]] = out.features[counted].float()
            logits[batch.indices[counted]] = out.logits[counted].float()
        if features is None or logits is None:
            raise PreceptorError("the training set is empty; the teacher has nothing to say")
        return features, logits

    def keep(self, outputs: tuple[Tensor, Tensor]) -> None:
        """Answer from these outputs from here on."""
        self._cache = outputs


def _in_two(
    preprocessing: Preprocessing | None, normalise: Normalise
) -> tuple[Preprocessing | None, Normalise]:
    """Resizing and normalising apart: the constants of the latter stay on the device, for a CUDA graph."""
    if preprocessing is None:
        return None, normalise
    size = preprocessing.input_size
    mean = preprocessing.mean or (0.0,) * size[0]
    own = Normalise(InputSpec(tuple(size), mean, preprocessing.std or (1.0,) * size[0]))
    return preprocessing.model_copy(update={"mean": (), "std": ()}), own.to(normalise.mean.device)


def _last_layer(module: nn.Module) -> Tensor | None:
    """The rows of the classifier, (C_T, d)."""
    layer = getattr(module, "classifier", None)
    rows = layer.weight if isinstance(layer, nn.Linear) else layer
    return rows.detach() if isinstance(rows, Tensor) else None


def check_cacheable(recipe: Recipe, augment: str, method: type[Method]) -> None:
    """Refuse to store the teacher's outputs where the same sample does not look the same each time."""
    reason = None
    if augment != "none":
        reason = f"augment {augment} shows a sample differently each time; use augment none"
    elif recipe.mixup:
        reason = "mixup pairs a sample differently each time; use mixup 0"
    elif method.expand is not Method.expand:
        reason = f"method {method.name} makes further views of each sample"
    elif "maps" in method.needs:
        reason = f"method {method.name} reads feature maps, which would not fit into memory"
    if reason:
        raise PreceptorError(
            f"the teacher's outputs cannot be cached: {reason}, or leave out cache_teacher (--cache-teacher)"
        )
