"""Packages that can be called: `preceptor.rank` and `preceptor.distill` are packages and public functions at once.

Python binds a subpackage to its parent under its own name, so ``from preceptor import rank`` gives the package
whatever the parent says. Making the package callable lets both meanings stand: ``rank(zoo, task)`` and
``preceptor.rank.halving``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from inspect import Signature, getdoc, signature
from types import ModuleType
from typing import Any


def make_callable(package: str, module: str, function: str) -> None:
    """Let calls of `package` go to `function` of `module`, which is imported at the first call.

    Signature and help are the function's too; to ask for them imports it as well.
    """

    def behind() -> Callable[..., Any]:
        return getattr(importlib.import_module(module), function)

    about = sys.modules[package].__doc__

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return behind()(*arguments, **options)

        @property
        def __signature__(self) -> Signature:
            return signature(behind())

        @property
        def __doc__(self) -> str:  # type: ignore[override]
            called = behind()
            return f"{about}\n{function}{signature(called)}\n\n{getdoc(called)}"

    sys.modules[package].__class__ = CallablePackage
