"""Words that errors and remarks share: what was probably meant, how many, and lists that end somewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Asks "did you mean 'a' or 'b'?" where known names are near; else it is `otherwise`."""
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


def counted(number: int, one: str, several: str | None = None) -> str:
    """The number with its noun, as in "1 entry" and "2 entries"; `several` is `one` with an s unless given."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def with_comma_quoted(name: str) -> str:
    """The name as it can stand in a list: in quotes where it has a comma of its own."""
    return repr(name) if "," in name else name


def listed(names: Iterable[str], limit: int = 5) -> str:
    """The names, as in "a, b, c and 7 more"."""
    every = list(names)
    shown = ", ".join(every[:limit])
    return shown if len(every) <= limit else f"{shown} and {len(every) - limit} more"
