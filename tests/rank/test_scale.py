"""Many teachers: memory stays flat, every teacher costs the same, and kill -9 of the driver is survived."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from benchmarks.rank_scale import SimulatedZoo, resident, simulated_task

from preceptor.rank import rank


def test_memory_does_not_grow_with_the_zoo(tmp_path):
    # Features of one teacher are 4 MB; fifty of them would show.
    task, marks = simulated_task(2000), []
    zoo = SimulatedZoo(70, features=512)
    rank(zoo, task, ["leep"], cache=str(tmp_path), on_row=lambda row: marks.append(resident()))
    assert marks[-1] - marks[20] < 20, f"{marks[20]:.0f} MB after 20 teachers, {marks[-1]:.0f} MB after 70"


def test_a_ranked_zoo_is_recalled_in_one_read_a_teacher(tmp_path, monkeypatch):
    zoo, task = SimulatedZoo(60), simulated_task(100)
    first = rank(zoo, task, ["leep"], cache=str(tmp_path))
    reads = []
    read = SimulatedZoo.card
    monkeypatch.setattr(SimulatedZoo, "card", lambda self, name: reads.append(name) or read(self, name))
    monkeypatch.setattr(SimulatedZoo, "load", None)
    again = rank(zoo, task, ["leep"], cache=str(tmp_path))
    assert again.rows == first.rows
    assert len(reads) == 60


SCRIPT = """
    import sys
    from benchmarks.rank_scale import SimulatedZoo, simulated_task
    from preceptor.rank import rank

    def say(row):
        print(row.name, flush=True)

    rank(SimulatedZoo(150), simulated_task(100), ["leep"], cache=sys.argv[1], on_row=say)
"""


def test_kill_9_of_the_driver_costs_what_was_under_way_only(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        finished = [driver.stdout.readline().strip() for _ in range(15)]
        driver.send_signal(signal.SIGKILL)
        finished += driver.stdout.read().split()
    assert 15 <= len(finished) < 150
    computed = []
    load = SimulatedZoo.load

    class Watched(SimulatedZoo):
        def load(self, name, **more):
            computed.append(name)
            return load(self, name, **more)

    ranking = rank(Watched(150), simulated_task(100), ["leep"], cache=str(tmp_path))
    assert all(row.rank for row in ranking.rows)
    assert not set(computed) & set(finished[:-1])
    assert len(computed) >= 150 - len(finished) - 1


@pytest.mark.slow
def test_a_thousand_cached_teachers_cost_the_same_each_and_no_memory(tmp_path):
    task, zoo = simulated_task(500), SimulatedZoo(1000, features=64)
    rank(zoo, task, ["leep"], cache=str(tmp_path))
    marks, start = [], time.perf_counter()
    rank(
        zoo,
        task,
        ["knn"],
        cache=str(tmp_path),
        on_row=lambda _: marks.append((time.perf_counter() - start, resident())),
    )
    first, second = marks[499][0] - marks[0][0], marks[-1][0] - marks[499][0]
    assert second < 1.5 * first
    assert marks[-1][1] - marks[50][1] < 25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_kill_9_of_the_driver_on_ray_is_survived(tmp_path):
    script = textwrap.dedent(SCRIPT).replace("cache=", 'engine="ray", workers=2, cache=')
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    ) as driver:
        assert driver.stdout is not None
        finished = [driver.stdout.readline().strip() for _ in range(40)]
        driver.send_signal(signal.SIGKILL)
    known = [json.loads(path.read_text()) for path in (tmp_path / "rankings").rglob("*.json")]
    assert len(known) >= 40
    ranking = rank(SimulatedZoo(150), simulated_task(100), ["leep"], cache=str(tmp_path))
    assert all(row.rank for row in ranking.rows)
    assert set(finished) <= {row.name for row in ranking.rows}
