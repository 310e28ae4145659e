"""HTML for notebooks, out of plain numbers: tables, heat maps and curves. Imports nothing of ours and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 320, 90  # of a curve, in px
MOST_CELLS = 4000
BLUE = "0,114,178"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """A table; numbers are shortened, None is left empty, everything is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def heat(values: Sequence[Sequence[float]], caption: str) -> str:
    """A matrix as coloured squares, deeper for more; nothing where it is empty or too large to be looked at."""
    if not 0 < sum(len(row) for row in values) <= MOST_CELLS:
        return ""
    most = max((value for row in values for value in row), default=0.0) or 1.0
    side = max(3, min(18, 480 // max(len(values), len(values[0]))))
    squares = "".join(
        f'<rect x="{side * x}" y="{side * y}" width="{side}" height="{side}" '
        f'fill="rgba({BLUE},{max(value, 0.0) / most:.3f})"><title>row {y}, column {x}: {value:.3g}</title></rect>'
        for y, row in enumerate(values)
        for x, value in enumerate(row)
    )
    return _figure(squares, side * len(values[0]), side * len(values), caption)


def curve(values: Sequence[float | None], caption: str) -> str:
    """A line over epochs, from the lowest to the highest value; nothing where there are fewer than two."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    low, high = min(value for _, value in known), max(value for _, value in known)
    points = " ".join(
        f"{WIDTH * place / (len(values) - 1):.1f},"
        f"{4 + (HEIGHT - 8) * (1 - (value - low) / ((high - low) or 1.0)):.1f}"
        for place, value in known
    )
    line = f'<polyline points="{points}" fill="none" stroke="rgb({BLUE})" stroke-width="2"/>'
    return _figure(line, WIDTH, HEIGHT, f"{caption}: {low:.3g} to {high:.3g}")


def paragraphs(lines: Sequence[str]) -> str:
    """Sentences, one below the other."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _figure(inside: str, width: int, height: int, caption: str) -> str:
    shown = escape(caption, quote=True)
    svg = f'<svg width="{width}" height="{height}" role="img" aria-label="{shown}">{inside}</svg>'
    return f"<figure><figcaption>{shown}</figcaption>{svg}</figure>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))
