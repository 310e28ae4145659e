from importlib import import_module

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from preceptor.metrics.nleep import nleep
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import leep_by_loops

module = import_module("preceptor.metrics.nleep")  # the package holds the function of that name


def sklearn_nleep(features, labels, components, iterations):
    """The same mixture through sklearn: PCA to 80 % energy, EM from the same partition."""
    points = PCA(n_components=0.8, svd_solver="full").fit_transform(features)
    points /= np.sqrt(((features - features.mean(axis=0)) ** 2).sum(axis=1).mean())
    partition = module._var_part(points, components)
    floor = module.FLOOR * points.var(axis=0).mean()
    start = [points[partition == k] for k in range(partition.max() + 1)]
    mixture = GaussianMixture(
        len(start),
        covariance_type="diag",
        tol=module.TOLERANCE,
        reg_covar=floor,
        max_iter=iterations,
        means_init=[rows.mean(axis=0) for rows in start],
        weights_init=[len(rows) / len(points) for rows in start],
        precisions_init=[1 / (rows.var(axis=0) + floor) for rows in start],
    ).fit(points)
    return leep_by_loops(mixture.predict_proba(points).tolist(), labels.tolist())


@pytest.mark.parametrize("signal", [0.5, 1.5])
def test_agrees_with_a_mixture_fitted_by_sklearn(signal):
    inputs = task(samples=120, dimensions=6, classes=3, signal=signal)
    score = nleep(**inputs, components_per_class=3, max_iterations=100)
    expected = sklearn_nleep(inputs["features"], inputs["labels"], 9, iterations=100)
    np.testing.assert_allclose(score, expected, rtol=0.02)


def test_the_partition_cuts_the_widest_cluster_at_its_mean():
    points = np.array([[0.0, 0], [0, 1], [10, 0], [10, 1], [10, 9]])
    assert len(set(module._var_part(points, 1))) == 1
    two = module._var_part(points, 2)
    assert two[0] == two[1] != two[2] == two[3] == two[4]
    three = module._var_part(points, 3)
    assert len(set(three)) == 3
    assert three[2] == three[3] != three[4]
    assert len(set(module._var_part(points, 50))) == 5


def test_equal_samples_are_not_cut():
    points = np.repeat([[0.0, 0], [3, 1]], 10, axis=0)
    assert len(set(module._var_part(points, 8))) == 2


def log_joint(points, posterior):
    """log P(component, point) of the mixture that a posterior gives, (N, K), one component at a time."""
    mass = posterior.sum(axis=0)
    means = posterior.T @ points / mass[:, None]
    floor = module.FLOOR * points.var(axis=0).mean()
    columns = []
    for share, mean, weights in zip(mass / len(points), means, posterior.T, strict=True):
        variance = weights @ (points - mean) ** 2 / weights.sum() + floor
        columns.append(np.log(share) + norm.logpdf(points, mean, np.sqrt(variance)).sum(axis=1))
    return np.stack(columns, axis=1)


def test_a_step_of_the_iterations_is_bayes_rule():
    points = task(samples=200, dimensions=3)["features"]
    partition = module._var_part(points, 6)
    first, second = [module._mixture_posterior(points, partition, n) for n in (1, 2)]
    np.testing.assert_allclose(first, softmax(log_joint(points, np.eye(6)[partition]), axis=1), atol=1e-8)
    np.testing.assert_allclose(second, softmax(log_joint(points, first), axis=1), atol=1e-8)


def test_single_precision_gives_the_same_posterior():
    generator = np.random.default_rng(0)
    points = generator.standard_normal((4000, 32)) + 3 * generator.standard_normal((20, 32)).repeat(200, 0)
    partition = module._var_part(points, 200)  # 4000 x 200 x 32 numbers are taken in float32
    found = module._mixture_posterior(points, partition, 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, softmax(log_joint(points, np.eye(200)[partition]), axis=1), atol=5e-3)


def test_the_posterior_is_a_distribution_that_raises_the_likelihood():
    points = task(samples=200, dimensions=3)["features"]
    partition = module._var_part(points, 6)
    early, late = [module._mixture_posterior(points, partition, n) for n in (1, 50)]
    for posterior in (early, late):
        np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-12)

    def likelihood(posterior):
        return logsumexp(log_joint(points, posterior), axis=1).mean()

    assert likelihood(late) > likelihood(early)


def test_clusters_that_are_the_classes_score_zero():
    labels = np.arange(90) % 3
    features = 50 * np.eye(3)[labels] + np.random.default_rng(0).standard_normal((90, 3))
    np.testing.assert_allclose(nleep(features=features, labels=labels), 0, atol=1e-6)


def test_constant_features_score_the_entropy_of_the_classes_negated():
    np.testing.assert_allclose(nleep(**HARD["constant features"]), -np.log(3))


def test_the_partition_cuts_by_scatter_not_by_variance():
    many = np.stack([np.tile([0.0, 1.0], 50), np.zeros(100)], axis=1)  # scatter 25, variance 0.25
    pair = np.array([[100.0, 0], [100, 3]])  # scatter 4.5, variance 2.25
    assignment = module._var_part(np.concatenate([many, pair]), 3)
    assert assignment[0] != assignment[1]
    assert assignment[100] == assignment[101]
