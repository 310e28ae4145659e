import numpy as np
import pytest
from scipy.optimize import minimize

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, bridge, bridge_values, leep
from tests.metrics.rival_cases import task
from tests.oracles.metrics import centre_distances, softened


@pytest.fixture(scope="module")
def inputs():
    return task(40, 8, classes=4, sources=6)


def half_free_transport(p, cost, epsilon):
    """min <T, M> - epsilon H(T) with row sums p and nothing asked of the columns, by a general solver.

    H(T) = -sum T (log T - 1), as in Eq. (5); unknowns are the logarithms of each row's shares.
    """
    m, n = cost.shape

    def plan(x):
        shares = np.exp(x.reshape(m, n) - x.reshape(m, n).max(axis=1, keepdims=True))
        return p[:, None] * shares / shares.sum(axis=1, keepdims=True)

    def value(x):
        t = plan(x)
        return (t * cost).sum() + epsilon * (t * (np.log(t) - 1)).sum()

    return plan(minimize(value, np.zeros(m * n), method="BFGS", options={"gtol": 1e-9}).x)


def test_the_labels_under_the_plan_whose_second_side_is_free(inputs):
    cost = centre_distances(inputs["classifier"], inputs["features"], inputs["labels"])
    found = bridge_values(**inputs, epsilon=0.5)
    for row, label in list(enumerate(inputs["labels"]))[:5]:
        p = softened(inputs["logits"][row : row + 1])[0]
        column_sums = half_free_transport(p, cost, 0.5).sum(axis=0)
        np.testing.assert_allclose(found[row], np.log(column_sums[label]), atol=1e-5)
    np.testing.assert_allclose(bridge(**inputs, epsilon=0.5), found.mean(), rtol=1e-12)


def test_a_teacher_of_the_very_classes_is_judged_by_its_own_predictions():
    """Centres that coincide, and an epsilon so small that each class goes to its own: the teacher's log-loss."""
    labels = np.arange(30) % 3
    features = 5 * np.eye(3)[labels]
    logits = np.random.default_rng(0).normal(size=(30, 3))
    given = {"features": features, "labels": labels, "logits": logits, "classifier": np.eye(3)}
    own = np.log(softened(logits, 1.0)[np.arange(30), labels]).mean()
    np.testing.assert_allclose(bridge(**given, epsilon=1e-3, temperature=1.0), own, rtol=1e-9)


@pytest.mark.parametrize("sources", [5, 50, 500])
def test_no_better_than_chance_without_a_relation_however_many_classes_the_teacher_has(sources):
    """LEEP counts itself a relation out of chance where source classes are many."""
    random = np.random.default_rng(1)
    labels = np.arange(60) % 3
    given = {
        "features": random.normal(size=(60, 10)),
        "labels": labels,
        "logits": 3 * random.normal(size=(60, sources)),
        "classifier": random.normal(size=(sources, 10)),
    }
    assert bridge(**given) < np.log(1 / 3) + 0.02
    if sources == 500:
        assert leep(**given) > np.log(1 / 3) + 0.3


def test_stored_centres_take_the_place_of_the_rows(inputs):
    other = np.random.default_rng(3).normal(size=inputs["classifier"].shape)
    expected = bridge(**{**inputs, "classifier": other})
    assert bridge(**inputs, centers=other) == expected != bridge(**inputs)


def test_far_costs_underflow_nowhere(inputs):
    far = {**inputs, "features": 1e4 * inputs["features"]}
    value = bridge(**far, normalize=False, epsilon=1e-3)
    assert np.isfinite(value)
    assert value < -1e4


def test_a_class_without_samples_is_named(inputs):
    with pytest.raises(PreceptorError, match="class 'cat' has no sample"):
        METRICS["bridge"](**inputs, student_classes=("a", "b", "c", "d", "cat"))
