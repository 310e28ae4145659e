"""From a story to one HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from preceptor.core import Ranking
from preceptor.report import figures
from preceptor.report.correspondence import Correspondence, likeness_order, read_correspondence
from preceptor.report.story import Run, Story

PROBABLE = "bridge"  # the metric whose exponential is a probability that a reader can judge
MATCHES = 6  # best and worst matched classes that are named


def render(story: Story) -> str:
    """The page, complete: styles, script and pictures are inside."""
    environment = Environment(
        loader=PackageLoader("preceptor.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    environment.filters["seconds"] = lambda value: (
        f"{value:.2f} s" if value < 100 else f"{value / 60:.1f} min"
    )
    return environment.get_template("report.html.j2").render(
        story=story,
        style=Markup(_asset("report.css")),
        script=Markup(_asset("report.js")),
        ranking=_ranking(story.ranking) if story.ranking else None,
        correspondences=_correspondences(story),
        training=_training(story) if story.runs else None,
        evidence=_flat(story.evidence),
    )


def _asset(name: str) -> str:
    return resources.files("preceptor.report").joinpath(name).read_text(encoding="utf-8")


def _ranking(ranking: Ranking) -> dict[str, Any]:
    metrics = list(dict.fromkeys(name for row in ranking.rows for name in row.scores))
    metrics.sort(key=lambda name: name != ranking.metric)
    spans = {m: [row.scores[m] for row in ranking.rows if m in row.scores] for m in metrics}
    rows = [
        {
            "row": row,
            "bars": {m: _share(row.scores[m], spans[m]) for m in metrics if m in row.scores},
            "chance": (ranking.confidence or {}).get(row.name),
            "probability": _probability(row.scores.get(PROBABLE)),
            "metric_seconds": sum(row.metric_seconds.values()),
            "reason": "; ".join(row.reasons.values()),
        }
        for row in ranking.rows
    ]
    return {"metrics": metrics, "rows": rows, "agreement": ranking.agreement, "sure": ranking.confidence is not None,
            "by": ranking.metric, "how": ranking.evidence.get("confidence"),
            "probable": PROBABLE, "guess": _guess(ranking)}  # fmt: skip


def _probability(score: float | None) -> str | None:
    return None if score is None else f"{100 * math.exp(score):.3g} %"


def _guess(ranking: Ranking) -> str | None:
    """What a blind guess gives to the right class; None where the ranking does not name the classes."""
    classes = ranking.task.get("classes")
    return _probability(-math.log(len(classes))) if classes else None


def _share(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return 100.0 if high == low else round(4 + 96 * (value - low) / (high - low), 1)


def _correspondences(story: Story) -> list[dict[str, Any]]:
    if story.ranking is None:
        return []
    found = [read_correspondence(row.name, row.details) for row in story.ranking.rows]
    return [_correspondence(one, story.thumbnails) for one in found if one is not None]


def _correspondence(correspondence: Correspondence, pictures: Mapping[str, str]) -> dict[str, Any]:
    matches, names = correspondence.matches(), (correspondence.teacher_classes, correspondence.task_classes)
    label = f"heat map of the cost between the classes of {correspondence.teacher} and mine"
    return {
        "teacher": correspondence.teacher,
        "flows": Markup(figures.flow_chart(correspondence, pictures)),
        "heat": Markup(figures.heat_chart(correspondence.cost, *names, label)),
        "low": float(correspondence.cost.min()),
        "high": float(correspondence.cost.max()),
        "best": matches[:MATCHES],
        "worst": matches[::-1][: min(MATCHES, max(len(matches) - MATCHES, 0))],
        "pictures": pictures,
    }


def _training(story: Story) -> dict[str, Any]:
    runs, student, plain = story.runs, story.student or story.runs[-1], story.plain
    accuracies = {run.name: figures.accuracy_series(run.log) for run in runs}
    terms = [(run.name, figures.loss_series(run.log)) for run in runs]
    chosen = story.pipeline is not None and not story.pipeline.get("arms")  # of several, by held-out data
    watched = "held-out training data" if chosen else f"the {runs[-1].watched} split"
    return {
        "runs": [
            {"run": run, "accuracy": run.accuracy, "notes": (run.result or {}).get("notes", [])}
            for run in runs
        ],
        "curves": Markup(
            figures.curves(accuracies, f"accuracy after each epoch, on {watched}", percent=True)
        ),
        "terms": [
            Markup(figures.curves(series, f"terms of the loss: {name}")) for name, series in terms if series
        ],
        "who": "kept student" if chosen else "student",
        "confusion": _confusion(student),
        "changes": _changes(plain, student) if plain is not None else None,
    }


def _confusion(run: Run) -> Markup | None:
    if run.result is None or not run.result.get("confusion"):
        return None
    counts = np.array(run.result["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    order = likeness_order(shares + shares.T)
    names = [run.config["classes"][place] for place in order]
    shares = shares[np.ix_(order, order)]
    return Markup(figures.heat_chart(shares, names, names, "confusion matrix of the student"))


def _changes(plain: Run, student: Run) -> list[tuple[str, float]] | None:
    """How many points each class gained or lost against the plain student, most gained first."""
    if plain.result is None or student.result is None:
        return None
    before, after = plain.result["per_class_accuracy"], student.result["per_class_accuracy"]
    both = [name for name in after if after[name] is not None and before.get(name) is not None]
    return sorted(
        ((name, 100 * (after[name] - before[name])) for name in both), key=lambda change: -change[1]
    )


def _flat(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as lines of name and value."""
    lines: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines.append((name, ", ".join(f"{key} {entry}" for key, entry in value.items())))
        else:
            lines.append((name, f"{value:.1f}" if isinstance(value, float) else str(value)))
    return lines
