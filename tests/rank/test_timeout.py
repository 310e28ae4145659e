"""A teacher that takes too long is ended; one that does not is none the worse for the watch."""

from preceptor.rank import rank
from tests.rank.conftest import GOOD


def test_a_hanging_teacher_is_ended_at_its_timeout_and_the_rest_goes_on(zoo, task, odd):
    odd("hang")
    ranking = rank(zoo, task, teachers=["odd", "random", "same"], timeout=4, trust_code=True)
    assert ranking["odd"].reasons["teacher"] == "took longer than the timeout of 4 s"
    assert [row.name for row in ranking.rows[:2]] == ["same", "random"]


def test_a_timeout_changes_no_digit(zoo, task):
    here = rank(zoo, task, ["sinkhorn", "logme"], teachers=GOOD[:2])
    there = rank(zoo, task, ["sinkhorn", "logme"], teachers=GOOD[:2], timeout=100, resume=False)
    assert [row.scores for row in here.rows] == [row.scores for row in there.rows]
