"""A zoo survives whatever happens to the processes that write to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preceptor.zoo import Zoo

REPOSITORY = Path(__file__).parents[2]


def processes(task: str, zoo: Zoo, run: Path, first: int, second: int) -> Any:
    command = [
        sys.executable,
        "-m",
        "tests.zoo.adding_processes",
        task,
        zoo.url,
        str(run),
        str(first),
        str(second),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_killed(zoo: Zoo, run: Path, trials: int, seed: int) -> None:
    outcome = processes("kill", zoo, run, trials, seed)
    names = zoo.names()
    assert set(outcome["finished"]) <= set(names)
    assert [row["name"] for row in zoo.listing()] == names
    assert not any("problem" in row for row in zoo.listing())
    assert [zoo.verify(name) for name in names] == [[] for _ in names]
    assert outcome["killed"] > trials // 10, "the kills came too late to test anything"
    zoo.add(f"run:{run}", name="after")
    root = Path(zoo.url)
    folders = sorted(path.name for path in root.iterdir() if path.is_dir())
    assert folders == zoo.names(), "half a teacher lies under its name, which nobody can use then"
    assert [path.name for path in root.glob(".*")] in ([".lock"], []), (
        "what the dead left behind was not cleared"
    )


def test_killing_add_at_any_moment_leaves_a_zoo_that_verifies(zoo: Zoo, run: Path) -> None:
    check_killed(zoo, run, trials=60, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killing_add_at_any_moment_many_times(zoo: Zoo, run: Path, seed: int) -> None:
    check_killed(zoo, run, trials=400, seed=seed)


def test_processes_adding_at_once_lose_nothing(zoo: Zoo, run: Path) -> None:
    outcome = processes("race", zoo, run, 3, 5)
    assert outcome["statuses"] == [0, 7, 7], "exactly one may have the name they fight over"
    names = zoo.names()
    assert names == sorted([f"p{p}-{i}" for p in range(3) for i in range(5)] + ["same"])
    assert [row["name"] for row in zoo.listing()] == names
    assert [zoo.verify(name) for name in names] == [[] for _ in names]


def test_processes_that_want_the_same_features_do_the_pass_once(zoo: Zoo, run: Path, tmp_path: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    outcome = processes("extract", zoo, tmp_path, 3, 10)
    assert outcome["statuses"] == [0, 0, 0]
    assert sorted(count for count, _ in outcome["outcomes"]) == [0, 0, 20]
    assert len({total for _, total in outcome["outcomes"]}) == 1
