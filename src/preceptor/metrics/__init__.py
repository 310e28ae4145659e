"""Metrics of a teacher for a task: tensors in, one float out, higher is better.

Every entry of `METRICS` is called with keywords, numpy or torch, and ignores what it does not need::

    METRICS["sinkhorn"](features=F, labels=y, logits=Z, classifier=W)

What a metric cannot do without are the keyword-only parameters without a default; `needs` reads them off.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from preceptor.core import PreceptorError

METRICS: dict[str, Callable[..., float]] = {}


def needs(name: str) -> tuple[str, ...]:
    """The arguments the metric cannot do without, in the order of its signature."""
    if name not in METRICS:
        raise PreceptorError(f"no metric {name!r}; there are {', '.join(METRICS)}")
    parameters = inspect.signature(METRICS[name]).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)


__all__ = ["METRICS", "needs"]
