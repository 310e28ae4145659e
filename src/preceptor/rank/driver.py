"""What drives a ranking: which teachers still need work, and what is said about the leaders in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Self

import numpy as np

from preceptor.core import RankingRow
from preceptor.data import Task
from preceptor.rank.assess import Assessor, Plan, Trial
from preceptor.rank.confidence import RESAMPLES, bootstrap_first, halves_first
from preceptor.rank.halving import Prefilter, round_sizes, successive_halving
from preceptor.rank.students import STUDENT_METRICS
from preceptor.rank.worker import Assess, Run
from preceptor.zoo import Zoo
from preceptor.zoo.cache import FeatureCache

LEADERS = 5  # teachers among which the chance to be first is estimated
CORRESPONDENCES = 3  # leaders whose cost matrix and mean plan go into the ranking
CONFIDENCE_HALVES = 40
MEANS = ("bridge", "sinkhorn", *STUDENT_METRICS)  # metrics that are means over instances


class Driver:
    """One ranking under way. A context manager, since an engine may hold a cluster."""

    def __init__(
        self,
        zoo: Zoo,
        task: Task,
        plan: Plan,
        by: str,
        open_engine: Callable[[], AbstractContextManager[Run]],
        timeout: float | None = None,
    ) -> None:
        """Take the parts of a ranking; nothing starts before it is needed.

        Args:
            zoo: the teachers.
            task: the task, already cut down to a sample where one was asked for.
            plan: what workers have to know.
            by: the metric that decides.
            open_engine: starts the engine; called when the first teacher needs work.
            timeout: seconds a teacher may take.
        """
        self.zoo, self.task, self.plan, self.by = zoo, task, plan, by
        self.open_engine, self.timeout = open_engine, timeout
        self._stack = ExitStack()
        self._run: Run | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def rows(self, names: Iterable[str]) -> Iterator[RankingRow]:
        """A row for each teacher: first those the journal knows, then the rest as they are done."""
        assess = Assessor(self.zoo, self.task, self.plan)
        pending = []
        for name in names:
            row = assess.recall(name)
            if row is None:
                pending.append(name)
            else:
                yield row
        yield from self._engine(assess, pending)

    def prefilter(self, names: Sequence[str]) -> Prefilter:
        """Rule teachers out on small samples by the metric that decides, or by its approximation."""
        metric = "sinkhorn" if self.by in STUDENT_METRICS else self.by
        plan = replace(self.plan, metrics=(metric,))

        def evaluate(names: Sequence[str], size: int) -> tuple[np.ndarray, np.ndarray]:
            trial = Trial(self.zoo, self.task.sample(size, self.plan.seed), plan)
            found = {row.name: row for row in self._engine(trial, names)}
            scores = np.array([found[name].scores.get(metric, np.nan) for name in names])
            missing = [np.nan] * trial.halves
            return scores, np.array([found[name].details.get("halves", missing) for name in names]).T

        return successive_halving(
            names, evaluate, list(round_sizes(len(self.task.train), len(self.task.classes)))
        )

    def describe(self, kept: Prefilter) -> dict[str, Any]:
        """What the pre-filter did, for the ranking's evidence."""
        rounds = [{"samples": r.size, "entered": r.entered, "ruled_out": r.left} for r in kept.rounds]
        return {"rounds": rounds, "saved_fraction": kept.saved_fraction(len(self.task.train))}

    def confidence(self, rows: Sequence[RankingRow]) -> tuple[dict[str, float], str]:
        """The chance of each leader to be really first, and how it was estimated."""
        leaders = [row.name for row in rows if row.rank is not None][:LEADERS]
        if len(leaders) < 2:
            return dict.fromkeys(leaders, 1.0), "there is no other teacher with a score"
        if self.by in MEANS:
            journal = self.plan.journal(self.task)
            arrays = {name: journal.arrays(self.zoo.card(name)) for name in leaders}
            key = f"instance_scores {self.by}"
            if all(key in found for found in arrays.values()):
                scores = {name: found[key] for name, found in arrays.items()}
                chances = bootstrap_first(scores, self.task.train.labels, seed=self.plan.seed)
                return (
                    chances,
                    f"{RESAMPLES} bootstrap resamples of the instances, first {len(leaders)} teachers",
                )
        trial = Trial(self.zoo, self.task, replace(self.plan, metrics=(self.by,)), CONFIDENCE_HALVES)
        found = {
            row.name: row.details["halves"] for row in self._engine(trial, leaders) if "halves" in row.details
        }
        chances = halves_first(found) if found else {}
        return chances, f"{CONFIDENCE_HALVES} random halves of the instances, first {len(leaders)} teachers"

    def with_correspondences(self, rows: Sequence[RankingRow]) -> tuple[RankingRow, ...]:
        """The rows, those of the first few with cost matrix and mean plan where these are of modest size."""
        journal = self.plan.journal(self.task)
        return tuple(
            self._with_correspondence(row, journal) if row.rank and row.rank <= CORRESPONDENCES else row
            for row in rows
        )

    def _with_correspondence(self, row: RankingRow, journal: Any) -> RankingRow:
        if "sinkhorn" not in row.scores:
            return row
        card = self.zoo.card(row.name)
        arrays = journal.arrays(card)
        if "cost" not in arrays:
            return row
        correspondence = {
            "teacher_classes": list(card.classes),
            "task_classes": list(self.task.classes),
            "cost": np.round(arrays["cost"].astype(float), 6).tolist(),
            "plan": np.round(arrays["plan"].astype(float), 8).tolist(),
        }
        return replace(row, details={**row.details, "correspondence": correspondence})

    def _engine(self, assess: Assess, names: Sequence[str]) -> Iterator[RankingRow]:
        if not names:
            return iter(())
        if self._run is None:
            FeatureCache(self.plan.cache).check_writable()  # said once, not as the reason of each teacher
            self._run = self._stack.enter_context(self.open_engine())
        return self._run(assess, names, timeout=self.timeout)
