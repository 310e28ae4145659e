"""Pick the right teacher out of a zoo of pre-trained classifiers, and distil it into your student.

    from preceptor import Task, Zoo, distill, rank, run, train

`Task` is your labelled data, `Zoo` a folder of teachers. `rank(zoo, task)` orders them, `distill(...)` and `train(...)`
train a student with and without one, `run(zoo, task)` does all of it and keeps the better student. `Ranking` is what
`rank` returns, `PreceptorError` what is raised with a sentence for the user. Parts: `preceptor.ot` (transport),
`preceptor.metrics`, `preceptor.models`, `preceptor.zoo`, `preceptor.distill`, `preceptor.report`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know; to import typing takes milliseconds
if TYPE_CHECKING:
    from typing import Any

    from preceptor.core import PreceptorError, Ranking
    from preceptor.data import Task
    from preceptor.distill.schedules import distill
    from preceptor.distill.train import train
    from preceptor.pipeline import run
    from preceptor.rank.ranking import rank
    from preceptor.zoo import Zoo

    __version__: str

__all__ = ["PreceptorError", "Ranking", "Task", "Zoo", "distill", "rank", "run", "train"]

# What imports torch comes when asked for, so that the command line starts at once.
_LATER = {
    "PreceptorError": "preceptor.core",
    "Ranking": "preceptor.core",
    "Task": "preceptor.data",
    "Zoo": "preceptor.zoo",
    "run": "preceptor.pipeline",
    "train": "preceptor.distill.train",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("preceptor")
    if name in ("distill", "rank"):  # packages that can be called
        return importlib.import_module(f"preceptor.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
