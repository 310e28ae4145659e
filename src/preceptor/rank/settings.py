"""What a caller of `rank` may ask for, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, options_of
from preceptor.rank.engine_local import run_local
from preceptor.rank.engine_ray import ray_session
from preceptor.rank.students import STUDENT_METRICS
from preceptor.rank.worker import Run
from preceptor.wording import hint, listed
from preceptor.zoo import Zoo

# name -> a session that yields the function which assesses teachers
ENGINES: dict[str, Callable[..., AbstractContextManager[Run]]] = {
    "local": lambda workers, device: nullcontext(run_local),
    "ray": ray_session,
}


def choose_engine(name: str, workers: int | None, device: str) -> Callable[[], AbstractContextManager[Run]]:
    """The engine by name, or an error that names them all."""
    if name not in ENGINES:
        raise PreceptorError(f"no engine {name!r}; there are {' and '.join(ENGINES)}")
    return partial(ENGINES[name], workers=workers, device=device)


def choose_metrics(metrics: str | Iterable[str], by: str | None = None) -> tuple[str, ...]:
    """Metric names, each once, ``all`` spelt out; an unknown one raises with its nearest neighbour.

    Args:
        metrics: one name or several; ``all`` stands for every one that needs no training of networks.
        by: the metric that is to decide; it must be among them.
    """
    asked = [metrics] if isinstance(metrics, str) else list(metrics)
    chosen: dict[str, None] = {}
    for name in asked:
        if name == "all":
            chosen.update(dict.fromkeys(name for name in METRICS if name not in STUDENT_METRICS))
        elif name in METRICS:
            chosen[name] = None
        else:
            there = f"there are {', '.join(METRICS)}, and all"
            raise PreceptorError(f"no metric {name!r}; {hint(name, METRICS, there)}")
    if not chosen:
        raise PreceptorError(f"no metric was named; there are {', '.join(METRICS)}, and all")
    if by is not None and by not in chosen:
        raise PreceptorError(
            f"cannot rank by {by!r}: it is not among the metrics {', '.join(chosen)}; ask for it as well (--metric)"
        )
    return tuple(chosen)


def choose_teachers(zoo: Zoo, teachers: str | Sequence[str] | None) -> list[str]:
    """All teachers of the zoo, or those asked for; an unknown name or an empty zoo raises."""
    names = list(zoo.names())
    teachers = [teachers] if isinstance(teachers, str) else teachers
    if not names:
        if not zoo.exists():
            raise PreceptorError(f"there is no zoo at {zoo.url!r}; `preceptor zoo add` makes one")
        raise PreceptorError(f"the zoo {zoo.url} holds no teacher; add one with: preceptor zoo add")
    strange = sorted(set(teachers or ()) - set(names))
    if strange:
        there = f"there are {listed(names)}"
        raise PreceptorError(f"no teacher {strange[0]!r} in {zoo.url}; {hint(strange[0], names, there)}")
    return names if teachers is None else list(dict.fromkeys(teachers))


def check_options(
    options: Mapping[str, Mapping[str, Any]] | None, metrics: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Options by metric as plain dictionaries; options of a metric that is not computed are a mistake."""
    options = options or {}
    strange = sorted(set(options) - set(metrics))
    if strange:
        raise PreceptorError(
            f"options for {strange[0]!r}, which is not among the metrics {', '.join(metrics)}"
        )
    for metric, values in options.items():
        known = options_of(metric)
        unknown = sorted(set(values) - set(known))
        if unknown:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise PreceptorError(f"metric {metric!r} has no option {unknown[0]!r}; {has}")
    return {metric: dict(values) for metric, values in options.items()}
