"""The zoo: teachers from anywhere, behind one interface, stored safely."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from preceptor.zoo.card import Card, Preprocessing

if TYPE_CHECKING:
    from preceptor.zoo.cache import FeatureCache
    from preceptor.zoo.features import extract
    from preceptor.zoo.store import Zoo, load_teacher
    from preceptor.zoo.teacher import Teacher

__all__ = ["Card", "FeatureCache", "Preprocessing", "Teacher", "Zoo", "extract", "load_teacher"]

# What imports torch or fsspec comes when asked for, so that the command line starts at once.
_LATER = {
    "FeatureCache": "preceptor.zoo.cache",
    "Teacher": "preceptor.zoo.teacher",
    "Zoo": "preceptor.zoo.store",
    "extract": "preceptor.zoo.features",
    "load_teacher": "preceptor.zoo.store",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
