"""Any model of timm as one of our networks: same maps, features and logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import timm
import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.models.network import Network, without_autocast
from preceptor.wording import hint

MAX_MAPS = 5  # transformers give one map for each block; methods that match maps want a handful of stages


class TimmNetwork(Network):
    """A timm backbone without its head, and the head as `classifier`.

    Its state dict has timm's own names, so that a saved student loads into timm without us, and timm's weights here.
    """

    def __init__(
        self, name: str, num_classes: int, input_shape: tuple[int, int, int], pretrained: bool = False
    ) -> None:
        super().__init__()
        backbone = create(name, num_classes, input_shape, pretrained)
        # Encoders, which timm has too, do not know the method.
        classifier = backbone.get_classifier() if hasattr(backbone, "get_classifier") else None
        if not isinstance(classifier, nn.Linear):
            end = "ends without a head" if classifier is None else f"ends in a {type(classifier).__name__}"
            raise PreceptorError(
                f"timm:{name} {end}, not in one nn.Linear, so its features "
                "and class rows are not defined; choose a timm model with a single linear head"
            )
        probe = torch.linspace(-1, 1, input_shape[0] * input_shape[1] * input_shape[2]).view(1, *input_shape)
        backbone.eval()
        with torch.no_grad(), _refusals(name, input_shape):
            wanted = backbone(probe)
        self._head = next(path for path, module in backbone.named_modules() if module is classifier)
        backbone.reset_classifier(0)
        self.backbone: Any = backbone
        self.classifier = classifier
        self.register_state_dict_post_hook(_as_timm_names)
        self.register_load_state_dict_pre_hook(_from_timm_names)
        self._map_choice = self._choose_maps(probe)
        self.eval()
        with torch.no_grad():
            logits = self(probe)
        if logits.shape != wanted.shape or (logits - wanted).abs().max() > 1e-3 * (1 + wanted.abs().max()):
            raise PreceptorError(
                f"timm:{name} does something between its pooled features and its logits that a linear layer "
                "cannot describe; choose another timm model"
            )
        self.train()

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """At most `MAX_MAPS` stage outputs where timm gives them, and what its head's linear layer sees."""
        if not self._map_choice:
            return (), self._pooled(self.backbone.forward_features(images))
        final, maps = self.backbone.forward_intermediates(images)
        return tuple(maps[index] for index in self._map_choice), self._pooled(final)

    def _pooled(self, final: Tensor) -> Tensor:
        """The pooling that timm does, in full precision under autocast too."""
        with without_autocast(final):
            return self.backbone.forward_head(final.to(self.classifier.weight.dtype))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C), without collecting maps."""
        return self._classified(self._pooled(self.backbone.forward_features(images)))[1]

    def _choose_maps(self, probe: Tensor) -> tuple[int, ...]:
        """Which intermediate outputs to give: all of a few, else evenly spaced ones with the last."""
        if not hasattr(self.backbone, "forward_intermediates"):
            return ()
        with torch.no_grad():
            count = len(self.backbone.forward_intermediates(probe)[1])
        kept = min(count, MAX_MAPS)
        return tuple((index + 1) * count // kept - 1 for index in range(kept))


def _as_timm_names(network: Any, state: dict[str, Any], prefix: str, *_metadata: Any) -> None:
    ours = [key for key in state if key.startswith((f"{prefix}backbone.", f"{prefix}classifier."))]
    for key in ours:
        part, _, rest = key[len(prefix) :].partition(".")
        state[prefix + (rest if part == "backbone" else f"{network._head}.{rest}")] = state.pop(key)


def _from_timm_names(network: Any, state: dict[str, Any], prefix: str, *_rest: Any) -> None:
    head = f"{network._head}."
    for key in [key for key in state if key.startswith(prefix)]:
        name = key[len(prefix) :]
        ours = f"classifier.{name[len(head) :]}" if name.startswith(head) else f"backbone.{name}"
        state[prefix + ours] = state.pop(key)


def create(name: str, num_classes: int, input_shape: tuple[int, int, int], pretrained: bool) -> Any:
    """Call timm's constructor, with near names in the error for an unknown one."""
    if not timm.is_model(name.split(".")[0]):
        near = hint(name, timm.list_models(), "see timm.list_models()")
        raise PreceptorError(f"timm has no model {name!r}; {near}")
    options: dict[str, Any] = {"num_classes": num_classes, "in_chans": input_shape[0]}
    default = timm.models.get_pretrained_cfg(name)
    if default is not None and default.fixed_input_size:
        options["img_size"] = input_shape[1:]
    with _refusals(name, input_shape):
        return timm.create_model(name, pretrained=pretrained, **options)


@contextmanager
def _refusals(name: str, input_shape: tuple[int, int, int]) -> Iterator[None]:
    """Whatever timm raises about an input shape, in one sentence with the size that the model is made for."""
    try:
        yield
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError) as error:
        default = timm.models.get_pretrained_cfg(name)
        made_for = None if default is None else default.input_size[-1]
        size = "" if made_for in (None, input_shape[-1]) else f", such as {made_for}, which it is made for"
        reason = str(error).rstrip(".")
        raise PreceptorError(
            f"timm:{name} cannot be built for inputs of shape {input_shape}: {reason}; choose another model or "
            f"another image_size (--image-size){size}"
        ) from error
