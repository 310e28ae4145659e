"""Class names of ImageNet, which timm carries."""

from __future__ import annotations

from preceptor.core import PreceptorError


def imagenet_classes(subset: str = "imagenet-1k") -> tuple[str, ...]:
    """Names of an ImageNet label set, all different: a repeated name gets its synset in brackets."""
    from timm.data import ImageNetInfo

    try:
        info = ImageNetInfo(subset)
    except (AssertionError, FileNotFoundError) as error:
        raise PreceptorError(
            f"no label set {subset!r} is known; give a list of class names, or imagenet-1k or imagenet-12k"
        ) from error
    names = [name.split(",")[0] for name in info.label_descriptions()]
    repeated = {name for name in names if names.count(name) > 1} if len(names) < 2000 else set(names)
    synsets = info.label_names()
    return tuple(
        f"{name} ({synset})" if name in repeated else name
        for name, synset in zip(names, synsets, strict=True)
    )
