"""Metrics of a teacher for a task: tensors in, one float out, higher is better.

Every entry of `METRICS` is called with keywords, numpy or torch, and ignores what data it does not need::

    METRICS["sinkhorn"](features=F, labels=y, logits=Z, classifier=W)

What a metric cannot do without are the keyword-only parameters without a default; `needs` reads them off. Metrics that
look at the teacher's classes take `classifier` or `centers` for them, and say so where neither comes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from preceptor.core import PreceptorError
from preceptor.metrics.bridge import bridge, bridge_values
from preceptor.metrics.entry import settings_of
from preceptor.metrics.gbc import gbc
from preceptor.metrics.hscore import hscore
from preceptor.metrics.knn import knn
from preceptor.metrics.leep import leep
from preceptor.metrics.lfc import lfc
from preceptor.metrics.logme import logme
from preceptor.metrics.nce import nce
from preceptor.metrics.nleep import nleep
from preceptor.metrics.otce import otce
from preceptor.metrics.parc import parc
from preceptor.metrics.probe import probe
from preceptor.metrics.sfda import sfda
from preceptor.metrics.sinkhorn import (
    Assessment,
    ClassPair,
    sinkhorn,
    sinkhorn_assessment,
    sinkhorn_between,
    sinkhorn_exact,
    sinkhorn_single,
)
from preceptor.metrics.transrate import transrate

METRICS: dict[str, Callable[..., float]] = {
    "bridge": bridge,
    "sinkhorn": sinkhorn,
    "sinkhorn-single": sinkhorn_single,
    "sinkhorn-exact": sinkhorn_exact,
    "logme": logme,
    "leep": leep,
    "nleep": nleep,
    "nce": nce,
    "hscore": hscore,
    "gbc": gbc,
    "otce": otce,
    "transrate": transrate,
    "sfda": sfda,
    "parc": parc,
    "lfc": lfc,
    "probe": probe,
    "knn": knn,
}
DEFAULT_METRICS = ("bridge", "sinkhorn")  # the first decides, the second says which classes speak for which


def needs(name: str) -> tuple[str, ...]:
    """The arguments the metric cannot do without, in the order of its signature."""
    if name not in METRICS:
        raise PreceptorError(f"no metric {name!r}; there are {', '.join(METRICS)}")
    parameters = inspect.signature(METRICS[name]).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)


def options_of(name: str) -> tuple[str, ...]:
    """The settings of a metric."""
    return settings_of(METRICS[name])


__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Assessment",
    "ClassPair",
    "bridge",
    "bridge_values",
    "gbc",
    "hscore",
    "knn",
    "leep",
    "lfc",
    "logme",
    "nce",
    "needs",
    "nleep",
    "options_of",
    "otce",
    "parc",
    "probe",
    "sfda",
    "sinkhorn",
    "sinkhorn_assessment",
    "sinkhorn_between",
    "sinkhorn_exact",
    "sinkhorn_single",
    "transrate",
]
