"""One teacher after the other on this machine; in a process of its own where there is a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preceptor.core import RankingRow
from preceptor.rank.worker import Assess, Worker


def run_local(assess: Assess, names: Iterable[str], *, timeout: float | None = None) -> Iterator[RankingRow]:
    """The row of each teacher as it is done.

    Args:
        assess: teacher's name -> row; it never raises for a teacher's fault.
        names: the teachers.
        timeout: seconds a teacher may take. A hanging forward pass can only be ended together with its
            process, so with a timeout the teachers run in a worker process.
    """
    if timeout is None:
        yield from map(assess, names)
        return
    worker = Worker(assess)
    try:
        for name in names:
            yield worker(name, timeout)
    finally:
        worker.close()
