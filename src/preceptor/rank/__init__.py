"""Zoo x task x metrics -> a ranking of teachers; on this machine or on a Ray cluster.

The package can be called: ``from preceptor import rank; rank(zoo, task)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preceptor.callable import make_callable

if TYPE_CHECKING:
    from preceptor.rank.ranking import rank
    from preceptor.rank.students import Student

__all__ = ["Student", "rank"]


def __getattr__(name: str) -> Any:
    """What imports torch comes when asked for, so that a worker process is up at once."""
    if name == "rank":
        from preceptor.rank.ranking import rank

        return rank
    if name == "Student":
        from preceptor.rank.students import Student

        return Student
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


make_callable(__name__, "preceptor.rank.ranking", "rank")
