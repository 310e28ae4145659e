"""A process of its own for teachers: one that hangs, or takes the process down, costs only itself.

`serve` runs in the process, `Worker` is its other end. The process lives as long as its teachers behave, so
that start-up is paid once, not for each teacher.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from preceptor.core import PreceptorError, RankingRow

START_SECONDS = 300.0  # importing torch from a cold network disk takes its time

Assess = Callable[[str], RankingRow]
Run = Callable[..., Iterator[RankingRow]]  # assess, names, timeout -> rows as they are done


class Worker:
    """Calls `assess` in another process, with a deadline for each call."""

    def __init__(self, assess: Assess) -> None:
        self.assess = assess
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Connection | None = None

    def __call__(self, name: str, timeout: float | None) -> RankingRow:
        """Assess one teacher; past the deadline, or if the process dies, the row says so."""
        channel = self._start()
        try:
            channel.send(name)
            if not channel.poll(timeout):
                self.close()
                return failure(name, f"took longer than the timeout of {timeout:g} s")
            row: RankingRow = channel.recv()
            return row
        except (EOFError, ConnectionError):
            status = self.process.wait() if self.process else None
            self.close()
            return failure(name, f"its process died ({_status(status)}), most likely for want of memory")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self.channel is not None:
            self.channel.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = self.channel = None

    def _start(self) -> Connection:
        if self.channel is not None:
            return self.channel
        ours, theirs = Pipe()
        command = [sys.executable, "-c", f"from preceptor.rank.worker import serve; serve({theirs.fileno()})"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        # A session of its own: Ctrl-C reaches the parent only, which then ends the worker.
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.channel = ours
        try:
            ours.send(self.assess)
            if not ours.poll(START_SECONDS):
                raise EOFError
            ours.recv()
        except (EOFError, ConnectionError) as error:
            self.close()
            raise PreceptorError("the worker process for a ranking with a timeout could not start") from error
        return ours


def failure(name: str, reason: str) -> RankingRow:
    """The row of a teacher that could not be assessed."""
    return RankingRow(name=name, rank=None, scores={}, reasons={"teacher": reason})


def _status(status: int | None) -> str:
    return f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"


def serve(descriptor: int) -> None:
    """Answer requests on a pipe until its other end closes: first what to call, then name after name."""
    channel = Connection(descriptor)
    os.dup2(2, 1)  # a teacher's code may print; standard output belongs to the parent
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        # A thread of its own notices the parent's end even while a teacher hangs.
        try:
            while True:
                requests.put(channel.recv())
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    assess: Assess = requests.get()
    channel.send("ready")
    while True:
        channel.send(assess(requests.get()))
