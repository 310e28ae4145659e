"""Options that several commands share, and settings of recipe and method as ``-o NAME=VALUE``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from preceptor.core import PreceptorError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Let python: teachers run their code.")]

IN_PYTHON = {"task": "data", "metrics": "metric"}  # what the functions call otherwise than the commands


def parse_options(
    pairs: Sequence[str], command: Callable[..., Any], *behind: Callable[..., Any]
) -> dict[str, Any]:
    """``weight=10`` as {"weight": 10}: values are JSON where they can be, else text.

    Args:
        pairs: As they were given.
        command: Whose own options are no settings of recipe or method.
        behind: The functions that take the settings, and whose other parameters are none either.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise PreceptorError(f"option {pair!r} came; expected NAME=VALUE, such as weight=10")
        name = name.replace("-", "_")
        _check_free(name, command, behind)
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError:
            parsed[name] = value
    return parsed


def _check_free(name: str, command: Callable[..., Any], behind: Sequence[Callable[..., Any]]) -> None:
    """Refuse a name that means something else to the command or to the functions behind it."""
    from preceptor.distill.recipe import RECIPE_FIELDS

    if name in RECIPE_FIELDS:
        return
    found = f"-o {name}=… came, and {name} is a setting of neither recipe nor method"
    hint = _own(command).get(IN_PYTHON.get(name, name))
    if hint is not None:
        raise PreceptorError(f"{found}; {hint}")
    if any(name in inspect.signature(function).parameters for function in behind):
        raise PreceptorError(f"{found}; only Python's {command.__name__} takes it")


def _own(command: Callable[..., Any]) -> dict[str, str]:
    """For each of the command's parameters how it is given, by its name and by that of its option."""
    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    hints: dict[str, str] = {}
    for parameter in typer.main.get_command(alone).params:
        if parameter.param_type_name == "argument":
            hints[str(parameter.name)] = f"give it as {str(parameter.name).upper()}"
            continue
        option = next(word for word in parameter.opts if word.startswith("--"))
        hints[str(parameter.name)] = hints[option[2:].replace("-", "_")] = f"use {option}"
    return hints
