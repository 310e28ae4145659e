"""The metrics that train students: their cost is said first, their trainings are kept."""

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.distill.recipe import Recipe
from preceptor.metrics.sinkhorn import sinkhorn_between
from preceptor.rank import Student, rank
from preceptor.rank.students import costs, student_logits
from tests.rank import teachers

STUDENT = Student("mlp-8", Recipe(epochs=3, batch_size=64))


@pytest.fixture
def small():
    return teachers.digits_task(samples=150)


def test_the_cost_is_said_before_anything_starts(small):
    said = costs(("sinkhorn", "sinkhorn-single", "sinkhorn-exact"), STUDENT, small, 4)
    assert said == [
        "sinkhorn-single trains one plain student: mlp-8, 3 epochs each, 450 passes of a sample forward "
        "and back in all; what is finished is kept",
        "sinkhorn-exact trains one distilled student for each of 4 teachers: mlp-8, 3 epochs each, "
        "1,800 passes of a sample forward and back in all; what is finished is kept",
    ]
    assert costs(("sinkhorn",), None, small, 4) == []
    with pytest.raises(PreceptorError, match="sinkhorn-single trains students; name their architecture"):
        costs(("sinkhorn-single",), None, small, 4)


def test_single_and_exact_are_eq_24_with_their_students(zoo, small, own_cache):
    said = []
    ranking = rank(
        zoo,
        small,
        ["sinkhorn-single", "sinkhorn-exact"],
        teachers=["same", "random"],
        student=STUDENT,
        notify=said.append,
        sample=100,
    )
    assert len(said) == 2
    assert ranking.confidence is not None
    task = small.sample(100, 0)
    teacher = zoo.load("same")
    output = teacher.outputs(teacher.preprocessing.apply(task.train.load(np.arange(100))))
    for metric, who in (("sinkhorn-single", None), ("sinkhorn-exact", teacher)):
        logits = student_logits(task, STUDENT, cache=str(own_cache), device="cpu", seed=0, teacher=who)
        direct = sinkhorn_between(
            features=output.features,
            labels=task.train.labels,
            logits=output.logits,
            classifier=teacher.classifier,
            student_logits=logits,
        )
        np.testing.assert_allclose(ranking["same"].scores[metric], direct.score, rtol=1e-4)
    # One plain student and two distilled ones, no more.
    assert len(list((own_cache / "students").glob("*/logits.npy"))) == 3


def test_a_trained_student_is_not_trained_again(small, own_cache, monkeypatch):
    first = student_logits(small, STUDENT, cache=str(own_cache), device="cpu", seed=0)
    assert first.shape == (150, 5)
    monkeypatch.setattr("preceptor.rank.students.train", None)
    np.testing.assert_array_equal(
        first, student_logits(small, STUDENT, cache=str(own_cache), device="cpu", seed=0)
    )


def test_without_a_student_nothing_starts(zoo, small):
    with pytest.raises(PreceptorError, match="name their architecture with --student"):
        rank(zoo, small, ["sinkhorn-exact"])


def test_a_student_that_cannot_be_built_is_told_once(zoo, small):
    with pytest.raises(PreceptorError, match=r"^no architecture 'mlp8'"):
        rank(zoo, small, ["sinkhorn-single"], teachers=["same", "random"], student="mlp8")
