"""The Ray engine: the same digits, and workers that die or hang."""

import os

import pytest

from preceptor.rank import rank
from preceptor.rank.engine_ray import run_ray
from preceptor.zoo import Zoo

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ray = pytest.importorskip("ray")
GOOD = ["same", "overlap", "disjoint", "random"]


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return tmp_path_factory.mktemp("flags")


@pytest.fixture(scope="module", autouse=True)
def cluster(flags):
    os.environ["ODD_TEACHERS"] = str(flags)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    del os.environ["ODD_TEACHERS"]


def test_ray_gives_the_same_to_the_last_digit(zoo, task, tmp_path):
    names = [*GOOD, "broken"]
    metrics = ["sinkhorn", "logme", "leep", "knn"]
    here = rank(zoo, task, metrics, teachers=names, cache=str(tmp_path / "a"))
    there = rank(zoo, task, metrics, teachers=names, engine="ray", cache=str(tmp_path / "b"))
    assert [(r.name, r.rank, r.scores, r.reasons) for r in there.rows] == [
        (r.name, r.rank, r.scores, r.reasons) for r in here.rows
    ]
    assert [r.details for r in there.rows] == [r.details for r in here.rows]
    assert there.evidence["engine"] == "ray"


def test_a_worker_killed_in_the_middle_costs_nothing(zoo, task, tmp_path, flags):
    (flags / "one-die-once").touch()
    names = ["odd", *GOOD]
    ranking = rank(zoo, task, teachers=names, engine="ray", trust_code=True, cache=str(tmp_path / "a"))
    assert not (flags / "one-die-once").exists()  # it did die
    assert all(row.rank is not None for row in ranking.rows)
    here = rank(zoo, task, teachers=names, trust_code=True, cache=str(tmp_path / "b"))
    assert [row.scores for row in ranking.rows] == [row.scores for row in here.rows]


def test_a_hanging_teacher_is_ended_on_its_worker(zoo, task, flags):
    (flags / "one-hang").touch()
    try:
        ranking = rank(zoo, task, teachers=["odd", "same"], engine="ray", trust_code=True, timeout=4)
    finally:
        (flags / "one-hang").unlink()
    assert ranking["odd"].reasons["teacher"] == "took longer than the timeout of 4 s"
    assert ranking["same"].rank == 1


def test_what_workers_finished_is_in_the_journal(zoo, task, monkeypatch):
    first = rank(zoo, task, teachers=GOOD, engine="ray")
    monkeypatch.setattr(Zoo, "load", None)
    assert rank(zoo, task, teachers=GOOD).rows == first.rows


class Doomed:
    def __call__(self, name):
        os.kill(os.getpid(), 9)


def test_a_teacher_that_kills_every_worker_gets_a_reason():
    rows = list(run_ray(Doomed(), ["a"], retries=1))
    assert rows[0].reasons == {
        "teacher": "its worker died 2 times (WorkerCrashedError), most likely for want of memory"
    }


class Echo:
    def __call__(self, name):
        from preceptor.core import RankingRow

        return RankingRow(name, None, {"x": 1.0})


def test_no_more_tasks_are_in_flight_than_the_cluster_can_use():
    taken = []

    def names():
        for i in range(30):
            taken.append(i)
            yield str(i)

    rows = run_ray(Echo(), names())
    next(rows)
    assert len(taken) <= 5
    assert len(list(rows)) == 29
