"""Zoo x task x metrics -> `Ranking`: the driver. What happens to one teacher is in `assess`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from preceptor.core import Ranking, RankingRow
from preceptor.data import Task
from preceptor.data.subsets import check_seed
from preceptor.defaults import own_defaults
from preceptor.devices import resolve_device
from preceptor.files import cache_folder
from preceptor.metrics import DEFAULT_METRICS
from preceptor.rank import evidence
from preceptor.rank.assess import Plan
from preceptor.rank.driver import Driver
from preceptor.rank.halving import Prefilter
from preceptor.rank.memory import parse_size
from preceptor.rank.settings import check_options, choose_engine, choose_metrics, choose_teachers
from preceptor.rank.students import STUDENT_METRICS, Student, costs
from preceptor.rank.table import agreement, sort_rows
from preceptor.rank.worker import failure
from preceptor.zoo import Zoo

logger = logging.getLogger(__name__)


@own_defaults()
def rank(
    zoo: Zoo | str | Path,
    task: Task | str | Path,
    metrics: str | Iterable[str] = DEFAULT_METRICS,
    *,
    by: str | None = None,
    engine: str = "local",
    sample: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    device: str = "auto",
    resume: bool = True,
    on_row: Callable[[RankingRow], None] | None = None,
    notify: Callable[[str], None] | None = None,
    memory_limit: int | str | None = None,
    prefilter: bool = False,
    confidence: bool | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    teachers: Sequence[str] | None = None,
    workers: int | None = None,
    threads: int | None = None,
    trust_code: bool = False,
    student: Student | str | None = None,
    cache: str | None = None,
) -> Ranking:
    """Rank every teacher of a zoo for a task.

    One forward pass a teacher, kept in the cache, then all metrics on the cached tensors; one teacher in
    memory at a time. Finished rows are journalled: an interrupted ranking goes on where it stopped, and a
    teacher added to a ranked zoo costs that one teacher. A teacher that fails to load, gives NaN, is too big
    or takes too long stands at the end with its reason.

    Args:
        zoo: a zoo or where it lies.
        task: a task or where its data lies.
        metrics: names in `preceptor.metrics.METRICS`, or ``"all"``.
        by: the metric that decides the order; the first of `metrics` by default.
        engine: ``"local"``, or ``"ray"`` for many teachers in parallel.
        sample: assess on a stratified subset of so many training samples, and say how sure the order is.
        seed: of the sample, the bootstrap and the pre-filter.
        timeout: seconds a teacher may take.
        device: where networks run, as torch names it; ``"auto"`` is a GPU where there is one.
        resume: take finished rows from the journal; False computes everything again.
        on_row: called with each row as it is done, before ranks are known.
        notify: told what takes long before it starts; by default the log.
        memory_limit: skip teachers whose assessment is estimated to need more: bytes, or ``"4GB"``.
        prefilter: rule teachers out on small samples first (see `preceptor.rank.halving`).
        confidence: estimate the chance of each leader to be first; by default only with `sample`.
        options: keyword arguments for single metrics, as ``{"sinkhorn": {"epsilon": 0.05}}``.
        teachers: rank only these of the zoo.
        workers: teachers in parallel on Ray; by default as many as the cluster has CPUs or GPUs.
        threads: CPU threads for one teacher; torch's own number by default. Engines agree to the last digit
            because they use the same number.
        trust_code: let teachers that came from ``python:`` sources run their code.
        student: what ``sinkhorn-single`` and ``sinkhorn-exact`` train: an architecture, or a `Student`.
        cache: folder of features and journal; the user's cache folder by default.
    """
    start = time.perf_counter()
    zoo = Zoo(os.fspath(zoo)) if isinstance(zoo, str | os.PathLike) else zoo
    task = task if isinstance(task, Task) else Task(task)
    check_seed(seed)
    chosen = choose_metrics(metrics, by)
    names = choose_teachers(zoo, teachers)
    student = Student(student) if isinstance(student, str) else student
    for sentence in costs(chosen, student, task, len(names)):
        (notify or logger.warning)(sentence)
    plan = Plan(
        metrics=chosen,
        cache=str(cache or cache_folder()),
        seed=seed,
        device=str(resolve_device(device)),
        threads=threads or torch.get_num_threads(),
        memory_limit=parse_size(memory_limit),
        resume=resume,
        trust_code=trust_code,
        student=student if set(STUDENT_METRICS) & set(chosen) else None,
        options=check_options(options, chosen),
    )
    part = task.sample(sample, seed) if sample is not None and sample < len(task.train) else task
    wanted = sample is not None if confidence is None else confidence
    open_engine = choose_engine(engine, workers, plan.device)
    with Driver(zoo, part, plan, by or chosen[0], open_engine, timeout) as driver:
        kept = _prefilter(driver, names, prefilter)
        rows = sort_rows(_collect(driver, kept, on_row), driver.by)
        chances, how = driver.confidence(rows) if wanted else (None, None)
    record = _record(plan, engine, sample, how, driver.describe(kept) if prefilter else None)
    return Ranking(
        metric=driver.by,
        rows=driver.with_correspondences(rows),
        task=_describe(task, part),
        agreement=agreement(rows, chosen),
        confidence=chances,
        evidence=evidence.gather(record, plan.device, time.perf_counter() - start),
        zoo=zoo.url,
    )


def _prefilter(driver: Driver, names: Sequence[str], wanted: bool) -> Prefilter:
    return driver.prefilter(names) if wanted else Prefilter(tuple(names))


def _collect(
    driver: Driver, kept: Prefilter, on_row: Callable[[RankingRow], None] | None
) -> Iterator[RankingRow]:
    ruled_out = (failure(name, reason) for name, reason in kept.ruled_out.items())
    for row in chain(ruled_out, driver.rows(kept.survivors)):
        if on_row is not None:
            on_row(row)
        yield row


def _record(
    plan: Plan, engine: str, sample: int | None, confidence: str | None, prefilter: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What was asked for, and how sure the order is, for the ranking's evidence."""
    return {
        "engine": engine,
        "seed": plan.seed,
        "device": plan.device,
        "threads": plan.threads,
        "sample": sample,
        "confidence": confidence,
        "prefilter": prefilter,
    }


def _describe(task: Task, part: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "fingerprint": task.fingerprint,
        "classes": list(task.classes),
        "samples": len(part.train),
        "of": len(task.train),
    }
