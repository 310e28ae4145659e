import shutil
from pathlib import Path

import pytest

from preceptor.data import Task
from preceptor.zoo import Zoo
from tests.rank import teachers

GOOD = ["same", "overlap", "disjoint", "random"]
HUGE = 900  # hidden units; its weights outweigh all the others


@pytest.fixture(scope="session")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo with good, overlapping, disjoint, untrained and huge teachers, an odd and a truncated one."""
    runs, folder = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("zoo")
    zoo = Zoo(folder)
    teachers.add(zoo, "same", range(5), runs)
    teachers.add(zoo, "overlap", range(1, 6), runs, seed=1)
    teachers.add(zoo, "disjoint", range(5, 10), runs, seed=2)
    teachers.add(zoo, "random", range(5, 10), runs, steps=0, seed=3)
    teachers.add(zoo, "huge", range(5), runs, steps=0, width=HUGE)
    teachers.add(zoo, "broken", range(5), runs, steps=0)
    teachers.truncate_weights(folder, "broken")
    zoo.add("python:tests.rank.teachers:hanging", name="odd", trust_code=True)
    return folder


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Tells the odd teacher what to do, in this process and in those it starts."""
    folder = tmp_path / "odd"
    folder.mkdir()
    monkeypatch.setenv("ODD_TEACHERS", str(folder))
    return lambda what: (folder / f"one-{what}").touch()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the features or the journal of another."""
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def task() -> Task:
    return teachers.digits_task()


@pytest.fixture
def zoo(zoo_folder: Path) -> Zoo:
    return Zoo(zoo_folder)


@pytest.fixture
def own_zoo(zoo_folder: Path, tmp_path: Path) -> Zoo:
    """A copy of the zoo that a test may add to."""
    shutil.copytree(zoo_folder, tmp_path / "zoo")
    return Zoo(tmp_path / "zoo")
