import numpy as np
import pytest

from preceptor.metrics.lfc import lfc
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import lfc_dense


@pytest.mark.parametrize("shape", [(120, 8), (30, 100), (50, 1)])
def test_agrees_with_dense_matrices(shape):
    inputs = task(samples=shape[0], dimensions=shape[1])
    np.testing.assert_allclose(lfc(**inputs), lfc_dense(inputs["features"], inputs["labels"]), rtol=1e-9)


@pytest.mark.parametrize(
    "case", ["one-sample classes", "duplicates", "one point a class", "N < d", "huge", "tiny"]
)
def test_agrees_on_hard_inputs(case):
    features, labels = HARD[case]["features"], HARD[case]["labels"]
    np.testing.assert_allclose(lfc(features=features, labels=labels), lfc_dense(features, labels), rtol=1e-8)


def test_unbalanced_classes_and_a_large_mean():
    labels = np.repeat([0, 1, 2], [5, 30, 65])
    features = np.random.default_rng(0).standard_normal((100, 6)) + labels[:, None] + 20
    np.testing.assert_allclose(lfc(features=features, labels=labels), lfc_dense(features, labels), rtol=1e-8)


def test_features_that_are_the_labels_correlate_fully():
    labels = np.arange(40) % 4
    np.testing.assert_allclose(lfc(features=np.eye(4)[labels], labels=labels), 1, rtol=1e-12)


@pytest.mark.parametrize("case", ["constant features", "zero features", "one class"])
def test_nothing_to_correlate_scores_zero(case):
    assert lfc(**HARD[case]) == 0
