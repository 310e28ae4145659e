"""Teachers in parallel on a Ray cluster: the one that is there, or a local one.

Workers load teachers, write features and journal entries to the shared cache and send back small rows. The
driver holds as many tasks in flight as the cluster has slots and no more, so its memory does not grow with
the zoo.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from preceptor.core import PreceptorError, RankingRow
from preceptor.rank.worker import Assess, Run, Worker, failure

RETRIES = 3  # of a teacher whose worker died
AHEAD = 2  # tasks in flight for each slot: while one runs, its successor is on its way


@contextmanager
def ray_session(*, workers: int | None = None, device: str = "cpu", retries: int = RETRIES) -> Iterator[Run]:
    """A connection to Ray for a while; yields the function that assesses teachers on it.

    Args:
        workers: teachers in parallel; by default one for each CPU (or GPU) of the cluster.
        device: where networks run; on a CUDA device each teacher gets a GPU of the cluster.
        retries: how often a teacher whose worker died is tried again.
    """
    ray, ours = connect(workers)
    try:
        yield lambda assess, names, timeout=None: run_ray(
            assess, names, timeout=timeout, workers=workers, device=device, retries=retries
        )
    finally:
        if ours:
            ray.shutdown()


def run_ray(
    assess: Assess,
    names: Iterable[str],
    *,
    timeout: float | None = None,
    workers: int | None = None,
    device: str = "cpu",
    retries: int = RETRIES,
) -> Iterator[RankingRow]:
    """The row of each teacher as it is done, in the order of completion.

    Args:
        assess: teacher's name -> row; picklable, unpacked by each worker once.
        names: the teachers.
        timeout: seconds a teacher may take, counted on the worker from its start there.
        workers: teachers in parallel.
        device: where networks run.
        retries: how often a teacher whose worker died is tried again.
    """
    import ray

    gpu = device.startswith("cuda")
    slots = int(ray.cluster_resources().get("GPU" if gpu else "CPU", 0))
    slots = min(slots, workers or slots)
    if slots < 1:
        raise PreceptorError(
            f"the Ray cluster has no {'GPU' if gpu else 'CPU'}; add a node or choose another --device"
        )
    resources = {"num_gpus": 1} if gpu else {"num_cpus": 1}
    remote = ray.remote(_assess_on_worker).options(max_retries=retries, **resources)
    shared = ray.put((assess, list(sys.path), os.getcwd()))
    # One task is under way to each busy slot, save where fewer workers than slots were asked for.
    ahead = AHEAD * slots if workers is None else slots
    yield from _in_flight(
        ray, lambda name: remote.remote([shared], name, timeout), iter(names), ahead, retries
    )


def connect(workers: int | None = None) -> tuple[Any, bool]:
    """The ray module, connected, and whether the connection is ours to close."""
    try:
        import ray
    except ImportError as error:
        raise PreceptorError(
            "--engine ray needs Ray; install it with: pip install 'preceptor[ray]'"
        ) from error
    if ray.is_initialized():
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    return ray, True


def _in_flight(
    ray: Any, submit: Callable[[str], Any], names: Iterator[str], limit: int, retries: int
) -> Iterator[RankingRow]:
    running: dict[Any, str] = {}
    try:
        while True:
            while len(running) < limit and (name := next(names, None)) is not None:
                running[submit(name)] = name
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                name = running.pop(reference)
                try:
                    yield ray.get(reference)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    kind = type(error).__name__
                    yield failure(
                        name, f"its worker died {retries + 1} times ({kind}), most likely for want of memory"
                    )
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


_shared: tuple[str, Assess, Worker] | None = None  # kept by a Ray worker between teachers of one ranking


def _assess_on_worker(parcel: list[Any], name: str, timeout: float | None) -> RankingRow:
    """Runs on a Ray worker. The parcel holds a reference: its content is unpacked once, not each time."""
    global _shared
    reference = parcel[0]
    if _shared is None or _shared[0] != reference.hex():
        import ray

        assess, path, folder = ray.get(reference)
        if _shared is not None:
            _shared[2].close()
        sys.path.extend(entry for entry in path if entry not in sys.path)
        if os.path.isdir(folder):
            os.chdir(folder)  # a zoo or a task may be named by a relative path
        _shared = (reference.hex(), assess, Worker(assess))
    return _shared[1](name) if timeout is None else _shared[2](name, timeout)
