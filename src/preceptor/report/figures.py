"""Pictures of the page as inline SVG and PNG, in colours that a colour-blind reader can tell apart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from preceptor.report.correspondence import MOST_TEACHER_CLASSES, Correspondence
from preceptor.report.samples import png_uri

# Okabe and Ito's palette; black and yellow are left out because they vanish on one of the two backgrounds.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")


def heat_chart(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], label: str) -> str:
    """A matrix as SVG: a PNG of one pixel a cell, dark for low values, with names where there is room for them."""
    from matplotlib import colormaps
    from PIL import Image

    low, high = float(np.min(values)), float(np.max(values))
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    picture = png_uri(
        Image.fromarray((255 * colormaps["viridis"](scaled)[:, :, :3]).round().astype(np.uint8))
    )
    width, height = 420.0, min(420.0, max(120.0, 420.0 * len(rows) / len(columns)))
    row, column = height / len(rows), width / len(columns)
    left, top = (110, 80) if row >= 7 and column >= 7 else (0, 0)
    parts = [
        f'<image class="heat" href="{picture}" x="{left}" y="{top}" width="{width:.0f}" height="{height:.1f}" '
        f'preserveAspectRatio="none" data-rows="{_data(rows)}" data-columns="{_data(columns)}" '
        f'data-values="{_data(np.round(values, 3).tolist())}"/>'
    ]
    if left:
        for place, name in enumerate(rows):
            y = top + (place + 0.5) * row
            parts.append(_name(name, left - 4, y, min(12, row), "end", 0))
        for place, name in enumerate(columns):
            parts.append(_name(name, left + (place + 0.5) * column, top - 4, min(12, column), "start", -60))
    box = f"0 0 {left + width:.0f} {top + height:.0f}"
    return f'<svg class="map" viewBox="{box}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _data(value: Any) -> str:
    return escape(json.dumps(value, ensure_ascii=False), quote=True)


def _name(name: str, x: float, y: float, size: float, anchor: str, turn: int) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    style = f"font-size:{size:.1f}px"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" style="{style}" text-anchor="{anchor}"{turned}>'
        f"{escape(_short(name, 16))}</text>"
    )


def curves(series: Mapping[str, Sequence[float | None]], label: str, *, percent: bool = False) -> str:
    """Lines over epochs as SVG, with a legend; gaps where there is no value."""
    width, height, bottom = 640, 240, 26
    values = [v for line in series.values() for v in line if v is not None and np.isfinite(v)]
    if not values:
        return ""
    longest = max(len(line) for line in series.values())
    low, high = _span(values, percent)
    ticks = _labels(low, high, percent)
    left = max(48, 10 + 7 * max(map(len, ticks.values())))

    def x(epoch: int) -> float:
        return left + (width - left - 8) * (epoch / max(longest - 1, 1))

    def y(value: float) -> float:
        return 8 + (height - bottom - 16) * (1 - (value - low) / (high - low))

    parts = []
    for tick, text in ticks.items():
        parts.append(
            f'<line class="grid" x1="{left}" x2="{width - 8}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{left}" y="{height - 4}">epoch 1</text>')
    if longest > 1:
        parts.append(f'<text x="{width - 8}" y="{height - 4}" text-anchor="end">{longest}</text>')
    for number, (name, line) in enumerate(series.items()):
        dash = ("", "6 3", "2 3", "8 3 2 3")[number // len(COLOURS) % 4] if number >= len(COLOURS) else ""
        points = [(x(e), y(v)) for e, v in enumerate(line) if v is not None and np.isfinite(v)]
        parts.append(_line(points, name, COLOURS[number % len(COLOURS)], dash))
    legend = " ".join(
        f'<span class="key"><i style="background:{COLOURS[n % len(COLOURS)]}"></i>{escape(name)}</span>'
        for n, name in enumerate(series)
    )
    frame = f'class="curves" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
    svg = f"<svg {frame}>{''.join(parts)}</svg>"
    return f"<figure><figcaption>{escape(label)} {legend}</figcaption>{svg}</figure>"


def _span(values: Sequence[float], percent: bool) -> tuple[float, float]:
    """The ends of an axis; a flat line has room above and below, in proportion to what it shows."""
    low, high = min(values), max(values)
    if high - low > 1e-6 * max(abs(low), abs(high)):  # less is rounding, which no label can tell
        return low, high
    if percent:
        return max(low - 0.05, 0.0), min(high + 0.05, 1.0)
    room = 0.05 * max(abs(low), abs(high)) or 0.05
    return low - room, high + room


def _labels(low: float, high: float, percent: bool) -> dict[float, str]:
    """Four places on an axis and what stands there: one digit more than the step has, so that no two are alike."""
    scale, unit = (100, " %") if percent else (1, "")
    step = math.floor(math.log10(scale * (high - low) / 3))
    largest = math.floor(math.log10(scale * max(abs(low), abs(high))))
    style = f".{largest - step + 1}e" if step < -6 or largest > 5 else f".{max(0, 1 - step)}f"
    return {tick: f"{scale * tick:z{style}}{unit}" for tick in np.linspace(low, high, 4).tolist()}


def _line(points: Sequence[tuple[float, float]], name: str, colour: str, dash: str) -> str:
    title = f"<title>{escape(name)}</title>"
    if len(points) == 1:  # a line of one point has no length, so that nothing would show
        (x, y) = points[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">{title}</circle>'
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" stroke="{colour}" stroke-dasharray="{dash}">{title}</polyline>'


def flow_chart(correspondence: Correspondence, pictures: Mapping[str, str]) -> str:
    """The mean transport plan as bands from the teacher's classes (left) to mine (right)."""
    flows = correspondence.flows()
    sent: dict[str, float] = {}
    for flow in flows:
        sent[flow.teacher] = sent.get(flow.teacher, 0.0) + flow.share
    kept = set(sorted(sent, key=lambda name: -sent[name])[:MOST_TEACHER_CLASSES])
    flows = [flow for flow in flows if flow.teacher in kept]
    left = [name for name in correspondence.teacher_classes if name in kept]
    right = list(correspondence.task_classes)
    row = 30 if any(name in pictures for name in right) else 22
    height = max(22 * len(left), row * len(right)) + 10
    scale = max(0.8 * row, min(0.8 * height / len(right), 0.9 * height / len(left) / max(sent.values())))
    parts: list[str] = []
    tops = {("l", n): _top(i, len(left), height, sent[n] * scale) for i, n in enumerate(left)}
    drawn = {name: sum(flow.share for flow in flows if flow.task == name) for name in right}
    tops |= {("r", n): _top(i, len(right), height, drawn[n] * scale) for i, n in enumerate(right)}
    used: dict[tuple[str, str], float] = {}
    for number, flow in enumerate(sorted(flows, key=lambda f: (right.index(f.task), -f.share))):
        thick = max(flow.share * scale, 0.75)
        start = tops["l", flow.teacher] + used.get(("l", flow.teacher), 0.0) + thick / 2
        end = tops["r", flow.task] + used.get(("r", flow.task), 0.0) + thick / 2
        used["l", flow.teacher] = used.get(("l", flow.teacher), 0.0) + thick
        used["r", flow.task] = used.get(("r", flow.task), 0.0) + thick
        colour = COLOURS[right.index(flow.task) % len(COLOURS)]
        says = f"{flow.teacher} → {flow.task}: {flow.share:.0%} of what reaches {flow.task}"
        parts.append(
            f'<path class="flow" id="flow-{number}" tabindex="0" '
            f'd="M150,{start:.1f} C320,{start:.1f} 320,{end:.1f} 490,{end:.1f}" '
            f'stroke="{colour}" stroke-width="{thick:.2f}" data-says="{escape(says)}" '
            f'data-from="{escape(flow.teacher)}" data-to="{escape(flow.task)}"><title>{escape(says)}</title></path>'
        )
    for name in left:
        middle = tops["l", name] + sent[name] * scale / 2
        parts.append(f'<text x="142" y="{middle + 4:.1f}" text-anchor="end">{escape(_short(name))}</text>')
    for name in right:
        middle = tops["r", name] + drawn[name] * scale / 2
        offset = 0
        if name in pictures:
            offset = 30
            parts.append(
                f'<image href="{pictures[name]}" x="496" y="{middle - 12:.1f}" width="24" height="24"/>'
            )
        parts.append(f'<text x="{498 + offset}" y="{middle + 4:.1f}">{escape(_short(name))}</text>')
    label = f"mean transport plan from the classes of {correspondence.teacher} to the classes of the task"
    frame = f'class="flows" viewBox="0 0 640 {height:.0f}" role="img" aria-label="{escape(label)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _top(index: int, count: int, height: float, size: float) -> float:
    return (index + 0.5) * height / count - size / 2


def _short(name: str, most: int = 20) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def loss_series(log: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The weighted terms of the loss, epoch by epoch."""
    names = list(dict.fromkeys(name for record in log for name in record.get("terms", {})))
    return {name: [record.get("terms", {}).get(name) for record in log] for name in names}


def accuracy_series(log: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Accuracy on the split that was watched, epoch by epoch."""
    return [record.get("validation_accuracy", record.get("test_accuracy")) for record in log]
