"""The table of methods, written from their declarations so that the docs cannot drift."""

from __future__ import annotations

import inspect

from preceptor.distill.losses import METHODS, Method


def default_options(method: type[Method]) -> dict[str, object]:
    """The options of a method with their defaults, those it takes over from another method first."""
    found: dict[str, object] = {}
    for kind in reversed(method.__mro__):
        if issubclass(kind, Method) and "__init__" in vars(kind):
            parameters = inspect.signature(kind.__init__).parameters.values()
            found |= {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
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
