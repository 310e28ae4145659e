import os
import signal
import time
from dataclasses import dataclass

import psutil
import pytest

from preceptor.core import RankingRow
from preceptor.rank.engine_local import run_local
from preceptor.rank.worker import Worker


@dataclass(frozen=True)
class Actor:
    """Does what the teacher's name says."""

    def __call__(self, name: str) -> RankingRow:
        if name == "hang":
            time.sleep(3600)
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("noise on standard output")
        return RankingRow(name, None, {"process": float(os.getpid())})


def test_a_hanging_and_a_dying_teacher_cost_only_themselves(capfd):
    start = time.monotonic()
    rows = {
        row.name: row for row in run_local(Actor(), ["first", "hang", "second", "die", "third"], timeout=0.5)
    }
    assert rows["hang"].reasons == {"teacher": "took longer than the timeout of 0.5 s"}
    assert rows["die"].reasons == {"teacher": "its process died (signal 9), most likely for want of memory"}
    assert {"first", "second", "third"} == {name for name, row in rows.items() if row.scores}
    assert rows["first"].scores["process"] != os.getpid()
    assert time.monotonic() - start < 120
    assert capfd.readouterr().out == ""  # what a teacher prints does not get into a --json document


def test_one_process_serves_many_teachers_and_ends_with_them():
    rows = list(run_local(Actor(), ["a", "b", "c"], timeout=30))
    assert len({row.scores["process"] for row in rows}) == 1
    assert not psutil.pid_exists(int(rows[0].scores["process"]))


def test_without_a_timeout_there_is_no_process():
    (row,) = run_local(Actor(), ["a"])
    assert row.scores["process"] == os.getpid()


def test_an_interrupted_ranking_leaves_no_process_behind():
    rows = run_local(Actor(), ["a", "b"], timeout=30)
    pid = int(next(rows).scores["process"])
    rows.close()
    assert not psutil.pid_exists(pid)


def test_the_process_ends_with_its_parent_even_while_a_teacher_hangs():
    worker = Worker(Actor())
    worker("a", 30)
    assert worker.channel is not None
    assert worker.process is not None
    worker.channel.send("hang")
    worker.channel.close()  # what the system does for a parent that is killed
    try:
        assert worker.process.wait(timeout=10) == 0
    finally:
        worker.channel = None
        worker.close()


def test_a_worker_that_cannot_start_says_so(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ValueError, match="could not start"):
        Worker(Actor())("a", 1)
