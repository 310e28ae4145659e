"""Zoo x task x metrics -> a ranking of teachers; on this machine or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
