from importlib import import_module

import numpy as np
import pytest

from preceptor.metrics.transrate import transrate
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import transrate_dense

module = import_module("preceptor.metrics.transrate")  # the package holds the function of that name


@pytest.mark.parametrize("shape", [(120, 8), (60, 40), (30, 100), (50, 1)])
@pytest.mark.parametrize("normalize", [True, False])
def test_agrees_with_singular_values(shape, normalize):
    inputs = task(samples=shape[0], dimensions=shape[1])
    expected = transrate_dense(inputs["features"], inputs["labels"], normalize=normalize)
    np.testing.assert_allclose(transrate(**inputs, normalize=normalize), expected, rtol=1e-8)


def test_unbalanced_classes_in_many_batches(monkeypatch):
    labels = np.repeat(np.arange(6), [1, 2, 3, 10, 40, 90])
    features = np.random.default_rng(0).standard_normal((146, 20)) + labels[:, None]
    expected = transrate_dense(features, labels)
    for entries in (1, 500, 10**6):
        monkeypatch.setattr(module, "BATCH_ENTRIES", entries)
        np.testing.assert_allclose(transrate(features=features, labels=labels), expected, rtol=1e-8)


def test_other_distortions():
    inputs = task()
    for epsilon in (1e-6, 1e-2, 10.0):
        expected = transrate_dense(inputs["features"], inputs["labels"], epsilon=epsilon)
        np.testing.assert_allclose(transrate(**inputs, epsilon=epsilon), expected, rtol=1e-7)


def test_the_scale_of_features_matters_only_where_asked():
    inputs = task()
    larger = 30 * inputs["features"]
    score = transrate(features=larger, labels=inputs["labels"])
    np.testing.assert_allclose(score, transrate(**inputs), rtol=1e-9)
    raw = transrate(features=larger, labels=inputs["labels"], normalize=False)
    assert abs(raw - transrate(**inputs, normalize=False)) > 1e-4


def test_a_single_class_and_constant_features_score_zero():
    np.testing.assert_allclose(transrate(**HARD["one class"]), 0, atol=1e-9)
    assert transrate(**HARD["constant features"]) == 0


@pytest.mark.parametrize("seed", range(8))
def test_rounding_makes_no_negative_score(seed):
    """Labels that say nothing: both rates are the same but for the precision of the features."""
    features = np.random.default_rng(seed).standard_normal((27, 24)).astype(np.float32)
    assert transrate(features=features, labels=np.zeros(27, dtype=int)) >= 0


def test_huge_features_of_low_rank():
    labels = np.arange(60) % 3
    points = np.random.default_rng(0).standard_normal((60, 2)) + labels[:, None]
    features = 1e9 * points @ np.random.default_rng(1).standard_normal((2, 10))
    expected = transrate_dense(points @ np.random.default_rng(1).standard_normal((2, 10)), labels)
    score = transrate(features=features, labels=labels)
    np.testing.assert_allclose(score, expected, rtol=1e-7)
    raw = transrate(features=features, labels=labels, normalize=False)
    np.testing.assert_allclose(raw, transrate_dense(features, labels, normalize=False), rtol=1e-6)
