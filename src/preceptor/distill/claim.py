"""One process at a time works in the folder of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from preceptor.core import PreceptorError
from preceptor.files import check_can_write, explain

LOCK = ".lock"


@contextmanager
def claimed(folder: Path, first: str) -> Iterator[None]:
    """Make the folder of a run, and keep others out of it until the block ends or this process dies.

    The lock file stays: who had opened it before it was removed would hold a lock that nobody else sees.

    Args:
        folder: Where the run lies or is going to lie.
        first: Name of the file that it begins with.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise PreceptorError(explain(error)) from None
    check_can_write(folder / first)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PreceptorError(
            f"{folder} is in use: another training writes there; wait for its end or choose another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()
