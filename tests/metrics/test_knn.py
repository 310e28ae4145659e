from importlib import import_module

import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.metrics.knn import knn
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import knn_by_loops

module = import_module("preceptor.metrics.knn")  # the package holds the function of that name


@pytest.mark.parametrize("neighbors", [1, 4, 5])
@pytest.mark.parametrize("shape", [(80, 8), (40, 60), (50, 1)])
def test_agrees_with_loops(shape, neighbors):
    inputs = task(samples=shape[0], dimensions=shape[1], signal=0.6)
    expected = knn_by_loops(inputs["features"], inputs["labels"].tolist(), neighbors)
    np.testing.assert_allclose(knn(**inputs, neighbors=neighbors), expected, rtol=1e-12)


@pytest.mark.parametrize("case", ["duplicates", "one-sample classes", "constant features", "N = 2", "N < d"])
def test_agrees_on_hard_inputs(case):
    features, labels = HARD[case]["features"], HARD[case]["labels"]
    np.testing.assert_allclose(knn(features=features, labels=labels), knn_by_loops(features, labels.tolist()))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_duplicates_in_single_precision_are_still_ties(offset):
    generator = np.random.default_rng(0)
    features = (np.repeat(generator.standard_normal((10, 16)), 8, axis=0) + offset).astype(np.float32)
    labels = generator.integers(0, 3, 80)
    np.testing.assert_allclose(knn(features=features, labels=labels), knn_by_loops(features, labels.tolist()))


@pytest.mark.parametrize("offset", [100.0, 1e4])
def test_in_single_precision_neighbours_are_found_far_from_the_origin(offset):
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 5
    centres = 0.3 * generator.standard_normal((5, 128))
    features = (generator.standard_normal((200, 128)) + centres[labels] + offset).astype(np.float32)
    expected = knn_by_loops(features.astype(np.float64), labels.tolist())
    np.testing.assert_allclose(knn(features=features, labels=labels), expected, atol=0.0051)


def test_queries_in_many_blocks(monkeypatch):
    inputs = task(signal=0.6)
    expected = knn(**inputs)
    monkeypatch.setattr(module, "QUERIES", 7)
    np.testing.assert_allclose(knn(**inputs), expected, rtol=1e-12)


def test_a_sample_of_queries_estimates_all():
    inputs = task(samples=3000, dimensions=6, signal=0.5)
    whole, part = knn(**inputs, max_queries=None), knn(**inputs, max_queries=1000)
    assert whole != part
    np.testing.assert_allclose(part, whole, atol=0.04)


def test_rare_classes_keep_their_weight_among_the_queries():
    # 5 rare samples far from each other are always wrong; the common class is always right.
    features = np.concatenate([np.random.default_rng(0).standard_normal((995, 2)), 100 * np.eye(5, 2)])
    features[-3:] += [[300, 0], [0, 300], [-300, 0]]
    labels = np.concatenate([np.zeros(995, dtype=int), np.arange(1, 6)])
    np.testing.assert_allclose(knn(features=features, labels=labels, max_queries=100), 0.995)


def test_errors():
    with pytest.raises(PreceptorError, match="neighbors is 0; expected a whole number, at least 1"):
        knn(**task(), neighbors=0)
    with pytest.raises(PreceptorError, match="features has 1 row; leave-one-out neighbours need at least 2"):
        knn(features=np.ones((1, 3)), labels=np.zeros(1, dtype=int))


def test_equal_distances_that_round_differently_are_ties():
    vector = np.random.default_rng(0).standard_normal(41)
    features = np.stack([np.roll(vector, shift) for shift in range(41)])  # as far from i + k as from i - k
    labels = np.random.default_rng(1).integers(0, 3, 41)
    for neighbors in (1, 3, 5):
        expected = knn_by_loops(features, labels.tolist(), neighbors)
        np.testing.assert_allclose(knn(features=features, labels=labels, neighbors=neighbors), expected)
