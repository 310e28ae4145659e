"""Packages that can be called: `preceptor.rank` and `preceptor.distill` are packages and public functions at once.

Python binds a subpackage to its parent under its own name, so ``from preceptor import rank`` gives the package
whatever the parent says. Making the package callable lets both meanings stand: ``rank(zoo, task)`` and
``preceptor.rank.halving``.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def make_callable(package: str, module: str, function: str) -> None:
    """Let calls of `package` go to `function` of `module`, which is imported when the first call comes."""

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), function)(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
