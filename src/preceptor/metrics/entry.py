"""What stands before every public function here: its keywords are looked at, the caller's defaults held off."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from preceptor.core import PreceptorError
from preceptor.defaults import own_defaults

DATA = frozenset(
    {"features", "labels", "logits", "classifier", "centers", "student_logits", "student_classes"}
)

P = ParamSpec("P")
R = TypeVar("R")


def entry(*passed_on: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that takes keywords only.

    All metrics are called with the same data, and ignore what they do not need of it; any other keyword that nobody
    knows is a mistake.

    Args:
        *passed_on: the functions that get the keywords which the decorated one does not name.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def guarded(*args: P.args, **given: P.kwargs) -> R:
            strange = given.keys() - known
            if strange:
                has = ", ".join(settings) or "none"
                raise PreceptorError(
                    f"{function.__name__} has no option {min(strange)!r}; its options are: {has}"
                )
            with own_defaults():
                return function(*args, **given)

        guarded.passed_on = passed_on  # type: ignore[attr-defined]
        settings = settings_of(guarded)
        known = DATA.union(settings)
        return guarded

    return wrap


def settings_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The options of a function and of those it passes keywords on to."""
    parameters = inspect.signature(function).parameters.values()
    found = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}
    for part in getattr(function, "passed_on", ()):
        found.update(dict.fromkeys(settings_of(part)))
    return tuple(name for name in found if name not in DATA)
