"""One teacher, one row: load it, one forward pass (cached), then every metric on the cached tensors.

This is what workers run. A teacher's fault never raises: it becomes the reason in the teacher's row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from preceptor.core import PreceptorError, RankingRow
from preceptor.data import Task
from preceptor.rank.confidence import half_samples
from preceptor.rank.journal import Entry, Journal
from preceptor.rank.measure import Arguments, lacking, measure, score, take
from preceptor.rank.memory import too_big
from preceptor.rank.students import EXACT, Student, student_logits
from preceptor.rank.tensors import load_tensors
from preceptor.rank.worker import failure
from preceptor.zoo import Card, Zoo

TRIAL_HALVES = 8


@dataclass(frozen=True)
class Plan:
    """What every worker has to know beside the zoo and the task."""

    metrics: tuple[str, ...]
    cache: str  # folder of the journal and the features
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    memory_limit: int | None = None  # bytes
    resume: bool = True
    trust_code: bool = False  # let teachers of python: sources run their code
    student: Student | None = None  # for the metrics that train students
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # metric -> keyword arguments

    def journal(self, task: Task, **more: Any) -> Journal:
        """The journal for a task: everything but the teacher that the numbers depend on names it."""
        setting = {
            "task": task.fingerprint,
            "samples": len(task.train),
            "seed": self.seed,
            "device": self.device.partition(":")[0],
            "options": self.options,
            "torch": torch.__version__,
            **more,
        }
        if self.student is not None:
            setting["student"] = self.student.describe()
        return Journal(Path(self.cache) / "rankings", setting)


@dataclass(frozen=True)
class Assessor:
    """Teacher's name -> its row; picklable, so that it travels to a worker once."""

    zoo: Zoo
    task: Task
    plan: Plan

    def __call__(self, name: str) -> RankingRow:
        """The row of one teacher, without a rank."""
        with _reasons_for(name) as failed, limited_threads(self.plan.threads):
            return self._row(name)
        return failed[0]

    def recall(self, name: str) -> RankingRow | None:
        """The row as the journal has it; None where something is still to be computed."""
        if not self.plan.resume:
            return None
        try:
            card = self.zoo.card(name)
            if card.runs_code:
                return None  # whether its code still gives these numbers is to be seen first
            entry = self.plan.journal(self.task).read(card)
        except (PreceptorError, OSError):
            return None  # a broken card is the assessment's to explain
        return None if entry is None or self._missing(entry) else self._as_row(name, entry)

    def _row(self, name: str) -> RankingRow:
        card = self.zoo.card(name)
        journal = self.plan.journal(self.task)
        entry = journal.read(card) or Entry()
        if not self.plan.resume:
            entry.forget(self.plan.metrics)
        missing = self._missing(entry)
        if missing:
            arguments, seconds = load(self.zoo, card, self.task, self.plan)
            entry.forward_seconds = max(entry.forward_seconds, seconds)
            entry.details["centers_source"] = card.centers_source
            arrays: dict[str, np.ndarray] = {}
            classes = (card.classes, self.task.classes)
            for metric in missing:
                students = partial(self._student_logits, metric, card)
                options = self.plan.options.get(metric, {})
                measure(metric, arguments, options, entry, arrays, classes, students)
            journal.write(card, entry, arrays)
        else:
            check_code(self.zoo, card, self.plan)
        return self._as_row(name, entry)

    def _student_logits(self, metric: str, card: Card) -> np.ndarray:
        plan = self.plan
        if plan.student is None:
            raise PreceptorError("trains a student, and none was named")
        teacher = None
        if metric == EXACT:
            teacher = self.zoo.load(card.name, device=plan.device, trust_code=plan.trust_code)
        return student_logits(
            self.task, plan.student, cache=plan.cache, device=plan.device, seed=plan.seed, teacher=teacher
        )

    def _missing(self, entry: Entry) -> list[str]:
        return [m for m in self.plan.metrics if m not in entry.scores and m not in entry.reasons]

    def _as_row(self, name: str, entry: Entry) -> RankingRow:
        def pick(values: Mapping[str, Any]) -> dict[str, Any]:
            return {metric: values[metric] for metric in self.plan.metrics if metric in values}

        return RankingRow(
            name=name,
            rank=None,
            scores=pick(entry.scores),
            reasons=pick(entry.reasons),
            forward_seconds=entry.forward_seconds,
            metric_seconds=pick(entry.metric_seconds),
            details=entry.details if "sinkhorn" in self.plan.metrics else {},
        )


@dataclass(frozen=True)
class Trial:
    """Teacher's name -> a row with its score by one metric and, in the details, on random halves."""

    zoo: Zoo
    task: Task
    plan: Plan
    halves: int = TRIAL_HALVES

    def __call__(self, name: str) -> RankingRow:
        """A row whose details hold ``halves``, one score each."""
        with _reasons_for(name) as failed, limited_threads(self.plan.threads):
            return self._row(name)
        return failed[0]

    def _row(self, name: str) -> RankingRow:
        metric = self.plan.metrics[0]
        card = self.zoo.card(name)
        journal = self.plan.journal(self.task, trial=metric, halves=self.halves)
        entry = journal.read(card) if self.plan.resume else None
        if entry is None:
            arguments, seconds = load(self.zoo, card, self.task, self.plan)
            reason = lacking(metric, arguments)
            if reason:
                raise PreceptorError(f"{metric} {reason}")
            options = self.plan.options.get(metric, {})
            entry = Entry(scores={metric: score(metric, arguments, options)}, forward_seconds=seconds)
            halves = half_samples(self.task.train.labels, self.halves, self.plan.seed)
            entry.details["halves"] = [score(metric, take(arguments, half), options) for half in halves]
            journal.write(card, entry)
        else:
            check_code(self.zoo, card, self.plan)
        return RankingRow(name, None, entry.scores, {}, entry.forward_seconds, {}, entry.details)


def load(zoo: Zoo, card: Card, task: Task, plan: Plan) -> tuple[Arguments, float]:
    """The teacher's tensors and the seconds they took; raises where it is too big for memory."""
    reason = too_big(card, len(task.train), device=plan.device, limit=plan.memory_limit)
    if reason:
        raise PreceptorError(reason)
    return load_tensors(zoo, card, task, cache=plan.cache, device=plan.device, trust_code=plan.trust_code)


def check_code(zoo: Zoo, card: Card, plan: Plan) -> None:
    """Refuse kept numbers of a teacher whose code is not trusted, or no longer gives them.

    What code computes depends on more files than can be listed, so it is run: the teacher is loaded, which
    repeats a recorded forward pass of a few inputs. A student could not have the teacher otherwise either.
    """
    if card.runs_code:
        zoo.load(card.name, trust_code=plan.trust_code)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Run torch and BLAS with `count` threads: the order of their sums, so the last digit, depends on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _reasons_for(name: str) -> Iterator[list[RankingRow]]:
    """Turns whatever a teacher raises into its row, the one element of the list after the block."""
    failed: list[RankingRow] = []
    try:
        yield failed
    except PreceptorError as error:
        failed.append(failure(name, str(error)))
    except (MemoryError, torch.OutOfMemoryError):
        failed.append(failure(name, "ran out of memory; use a bigger machine or --sample"))
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        failed.append(failure(name, f"{type(error).__name__}: {lines[0]}"))
