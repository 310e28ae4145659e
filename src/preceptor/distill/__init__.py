"""Distillation: the training loop, the methods and the trainings of several stages.

The package can be called: ``from preceptor import distill; distill("wrn-16-1", task, teacher)``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from preceptor.callable import make_callable

if TYPE_CHECKING:
    from preceptor.distill.losses import METHODS, Method
    from preceptor.distill.recipe import RECIPES, Recipe
    from preceptor.distill.result import Result
    from preceptor.distill.saved_run import load_run, predict
    from preceptor.distill.schedules import SCHEDULES, distill

__all__ = ["METHODS", "RECIPES", "SCHEDULES", "Method", "Recipe", "Result", "distill", "load_run", "predict"]

# What imports torch comes when asked for, so that the command line starts at once.
_LATER = {
    "METHODS": "preceptor.distill.losses",
    "Method": "preceptor.distill.losses",
    "RECIPES": "preceptor.distill.recipe",
    "Recipe": "preceptor.distill.recipe",
    "Result": "preceptor.distill.result",
    "SCHEDULES": "preceptor.distill.schedules",
    "distill": "preceptor.distill.schedules",
    "load_run": "preceptor.distill.saved_run",
    "predict": "preceptor.distill.saved_run",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


make_callable(__name__, "preceptor.distill.schedules", "distill")
