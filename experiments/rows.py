"""The rows of results/ by the jobs that they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import results
from experiments.jobs import Job


def _place(row: dict[str, Any]) -> tuple:
    """Few rows share these fields, so that a job's is found at once."""
    return tuple(row.get(name) for name in ("data", "task", "student", "variant", "seed"))


class Rows:
    """A folder of results as it was when each of its files was first asked for."""

    def __init__(self, folder: Path = results.RESULTS) -> None:
        self.folder = folder
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._index: dict[str, dict[tuple, list[dict[str, Any]]]] = {}

    def rows(self, name: str, **wanted: Any) -> list[dict[str, Any]]:
        """The rows of a file that have the given values."""
        if name not in self._rows:
            self._rows[name] = results.read(self.folder / f"{name}.jsonl")
        return [row for row in self._rows[name] if all(row.get(k) == v for k, v in wanted.items())]

    def row(self, job: Job) -> dict[str, Any] | None:
        """The row of a job; of several, the last."""
        return next(reversed(self.trainings(job)), None)

    def trainings(self, job: Job) -> list[dict[str, Any]]:
        """All rows of a job, which may have been trained more than once, the first first."""
        if job.experiment not in self._index:
            index = self._index[job.experiment] = {}
            for row in self.rows(job.experiment):
                index.setdefault(_place(row), []).append(row)
        rows = self._index[job.experiment].get(_place(job.identity()), [])
        return [row for row in rows if job.matches(row)]
