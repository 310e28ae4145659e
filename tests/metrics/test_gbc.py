import numpy as np
import pytest

from preceptor.core import PreceptorError
from preceptor.metrics.gbc import gbc
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import bhattacharyya_1d, gbc_by_loops


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
@pytest.mark.parametrize("shape", [(120, 8), (300, 100), (80, 120)])
def test_agrees_with_loops_over_dense_matrices(shape, covariance):
    inputs = task(samples=shape[0], dimensions=shape[1], signal=0.2)
    expected = gbc_by_loops(inputs["features"], inputs["labels"], covariance)
    np.testing.assert_allclose(gbc(**inputs, covariance=covariance), expected, rtol=1e-7)


def test_agrees_with_the_overlap_integral_on_the_line():
    labels = np.repeat([0, 1], [30, 50])
    features = np.random.default_rng(0).standard_normal(80) * (1 + labels) + 1.5 * labels
    halves = [features[labels == c] for c in (0, 1)]
    (mean_a, std_a), (mean_b, std_b) = [(half.mean(), half.std(ddof=1)) for half in halves]
    expected = -2 * bhattacharyya_1d(mean_a, std_a, mean_b, std_b)
    np.testing.assert_allclose(gbc(features=features[:, None], labels=labels), expected, rtol=1e-7)


@pytest.mark.parametrize("case", ["constant features", "zero features"])
def test_classes_that_are_all_alike_overlap_fully(case):
    assert gbc(**HARD[case]) == -6


def test_points_apart_do_not_overlap():
    assert gbc(**HARD["one point a class"]) == 0
    assert gbc(**HARD["one class"]) == 0


def test_a_class_of_one_sample_takes_the_pooled_variance():
    generator = np.random.default_rng(0)
    features = np.concatenate([generator.standard_normal((200, 1)), [[0.5]]])
    labels = np.repeat([0, 1], [200, 1])
    deviation = features[:200].std(ddof=1)
    expected = -2 * bhattacharyya_1d(features[:200].mean(), deviation, 0.5, deviation)
    np.testing.assert_allclose(gbc(features=features, labels=labels), expected, rtol=1e-7)


def test_the_kind_of_covariance_is_checked():
    with pytest.raises(PreceptorError, match="covariance is 'full'; expected 'spherical' or 'diagonal'"):
        gbc(**task(), covariance="full")
