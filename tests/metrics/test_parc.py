import numpy as np
import pytest

from preceptor.metrics.parc import parc
from tests.metrics.rival_cases import HARD, shuffled, task
from tests.oracles.rivals import parc_dense


@pytest.mark.parametrize("shape", [(60, 8), (40, 100), (50, 2)])
@pytest.mark.parametrize("classes", [2, 5])
def test_agrees_with_scipy_on_dense_matrices(shape, classes):
    inputs = task(samples=shape[0], dimensions=shape[1], classes=classes, signal=0.6)
    expected = parc_dense(inputs["features"], inputs["labels"])
    np.testing.assert_allclose(parc(**inputs), expected, rtol=1e-8)


def test_duplicates_share_their_ranks():
    features = np.repeat(np.random.default_rng(0).standard_normal((10, 4)), 4, axis=0)
    labels = np.arange(40) % 3
    expected = parc_dense(features, labels)
    np.testing.assert_allclose(parc(features=features, labels=labels), expected, rtol=1e-9)


def test_a_subset_is_close_to_the_whole_and_free_of_the_order():
    inputs = task(samples=900, dimensions=16, classes=3, signal=0.6)
    whole, part = parc(**inputs), parc(**inputs, max_samples=300)
    assert whole != part
    np.testing.assert_allclose(part, whole, atol=0.05)
    np.testing.assert_allclose(parc(**shuffled(inputs), max_samples=300), part, rtol=1e-9)


@pytest.mark.parametrize("case", ["d = 1", "constant features", "one class", "only one-sample classes"])
def test_nothing_to_rank_scores_zero(case):
    assert parc(**HARD[case]) == 0
