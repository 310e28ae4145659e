"""The table of methods, written from their declarations so that the docs cannot drift."""

from __future__ import annotations

import inspect

from preceptor.distill.losses import METHODS, Method


def default_options(method: type[Method]) -> dict[str, object]:
    """The options of a method with their defaults, those it takes over from another method first."""
    found: dict[str, object] = {}
    for kind in method.__mro__:
        if "__init__" not in vars(kind) or kind is Method:
            continue
        parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        found = {**own, **found}  # the nearest class's default holds
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break  # this class passes nothing on to the ones it derives from
    return found


def method_table() -> str:
    """A Markdown table: method, paper, needs, terms, default options."""
    lines = ["| method | paper | needs | terms | options and defaults |", "|---|---|---|---|---|"]
    for name, method in METHODS.items():
        needs = ", ".join(sorted(method.needs)) or "–"
        options = (
            ", ".join(f"`{key}={_shown(value)}`" for key, value in default_options(method).items()) or "–"
        )
        lines.append(
            f"| `{name}` | {method.reference} | {needs} | {', '.join(method.term_names)} | {options} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value).replace("'", '"')
