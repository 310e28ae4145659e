from importlib import import_module

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.metrics.otce import otce
from preceptor.ot import sinkhorn
from tests.metrics.rival_cases import task
from tests.oracles.rivals import otce_dense, transport_plan_exact

module = import_module("preceptor.metrics.otce")  # the package holds the function of that name


@pytest.mark.parametrize("distance_weight", [0.0, 1.0, 2.5])
def test_agrees_with_plain_scaling(distance_weight):
    inputs = task(samples=60)
    expected = otce_dense(
        inputs["features"], inputs["labels"], inputs["classifier"], distance_weight=distance_weight
    )
    score = otce(**inputs, distance_weight=distance_weight, tolerance=1e-4)
    np.testing.assert_allclose(score, expected, atol=5e-4)
    np.testing.assert_allclose(otce(**inputs, distance_weight=distance_weight), expected, rtol=0.02)


def test_small_epsilon_approaches_the_linear_programme():
    inputs = task(samples=24, dimensions=3, sources=4)
    sides = [
        inputs[key] / np.linalg.norm(inputs[key], axis=1, keepdims=True) for key in ("classifier", "features")
    ]
    cost = ((sides[0][:, None] - sides[1][None]) ** 2).sum(axis=2)
    plan = transport_plan_exact(np.full(4, 1 / 4), np.full(24, 1 / 24), cost)
    with_distance, without = [otce(**inputs, epsilon=0.03, distance_weight=weight) for weight in (1.0, 0.0)]
    np.testing.assert_allclose(without - with_distance, (plan * cost).sum(), rtol=0.05)


def test_stored_centres_go_before_classifier_rows():
    inputs = task()
    centers = np.stack([inputs["features"][inputs["labels"] == c].mean(axis=0) for c in range(4)])
    score = otce(**inputs, centers=centers)
    assert (
        score
        == otce(**inputs | {"classifier": centers})
        == otce(**inputs | {"classifier": None}, centers=centers)
    )
    assert score > otce(**inputs)


def test_a_subset_is_close_to_the_whole():
    inputs = task(samples=900, classes=3, sources=3)
    whole, part = otce(**inputs), otce(**inputs, max_samples=300)
    assert whole != part
    np.testing.assert_allclose(part, whole, atol=0.05)


def test_the_classes_keep_their_shares_in_a_subset(monkeypatch):
    labels = np.repeat([0, 1], [990, 10])
    features = np.random.default_rng(0).standard_normal((1000, 3))
    masses = []

    def recording(p, q, *options):
        masses.append(np.sort(q[0].numpy()))
        return sinkhorn(p, q, *options)

    monkeypatch.setattr(module, "sinkhorn", recording)
    otce(features=features, labels=labels, classifier=np.eye(3), max_samples=40)
    # 40 of the 990, which is 39.6 rounded, and one of the 10, which has to stand for 1 % of the mass.
    np.testing.assert_allclose(masses[0], np.sort([0.99 / 40] * 40 + [0.01]))


def test_zero_rows_stay_at_the_origin():
    inputs = task(samples=40)
    inputs["features"][3] = 0
    inputs["classifier"][1] = 0
    assert np.isfinite(otce(**inputs))


def test_errors():
    inputs = task()
    with pytest.raises(PreceptorError, match="neither classifier nor centers came; this metric needs one of"):
        otce(**inputs | {"classifier": None})
    with pytest.raises(PreceptorError, match="classifier has 7 columns; expected 8"):
        otce(**inputs | {"classifier": inputs["classifier"][:, 1:]})
    with pytest.raises(PreceptorError, match="centers has 7 columns; expected 8"):
        otce(**inputs, centers=inputs["classifier"][:, 1:])
