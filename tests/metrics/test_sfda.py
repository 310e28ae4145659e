from importlib import import_module

import numpy as np
import pytest

from preceptor.metrics import scatter as shared
from preceptor.metrics.sfda import sfda
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import sfda_dense

module = import_module("preceptor.metrics.sfda")  # the package holds the function of that name


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(120, 8), (300, 60), (50, 1)])
def test_agrees_with_the_two_steps_in_dense_matrices(shape, scale):
    inputs = task(samples=shape[0], dimensions=shape[1], signal=0.5)
    features = scale * inputs["features"]
    expected = sfda_dense(features, inputs["labels"])
    np.testing.assert_allclose(sfda(features=features, labels=inputs["labels"]), expected, rtol=1e-6)


def test_agrees_with_fewer_samples_than_dimensions():
    inputs = task(samples=40, dimensions=60, signal=0.3)
    features = 0.3 * inputs["features"]
    expected = sfda_dense(features, inputs["labels"])
    np.testing.assert_allclose(sfda(features=features, labels=inputs["labels"]), expected, rtol=1e-5)


def test_unbalanced_classes_and_more_than_one_block(monkeypatch):
    labels = np.repeat(np.arange(4), [1, 5, 40, 90])
    features = np.random.default_rng(0).standard_normal((136, 6)) * 0.3 + 0.2 * labels[:, None]
    expected = sfda_dense(features, labels)
    for block in (7, 64, 4096):
        monkeypatch.setattr(module, "BLOCK", block)
        monkeypatch.setattr(shared, "BLOCK", block)
        np.testing.assert_allclose(sfda(features=features.copy(), labels=labels), expected, rtol=1e-7)


def test_products_in_single_precision_stay_close(monkeypatch):
    inputs = task(samples=400, dimensions=30, signal=0.5, dtype=np.float32)
    features = 0.3 * inputs["features"]
    double = sfda(features=features, labels=inputs["labels"])
    monkeypatch.setattr(shared, "SINGLE_PRECISION_FROM", 0)
    single = sfda(features=features.copy(), labels=inputs["labels"])
    assert single != double
    np.testing.assert_allclose(single, double, rtol=1e-3)


def test_constant_features_score_the_entropy_of_the_classes_negated():
    np.testing.assert_allclose(sfda(**HARD["constant features"]), -np.log(3))


def test_one_class_and_points_apart_score_zero():
    assert sfda(**HARD["one class"]) == 0
    np.testing.assert_allclose(sfda(**HARD["one point a class"]), 0, atol=1e-9)


def test_low_rank_features_in_single_precision(monkeypatch):
    monkeypatch.setattr(shared, "SINGLE_PRECISION_FROM", 0)
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 4
    points = generator.standard_normal((200, 5)) + labels[:, None]
    features = (100 * points @ generator.standard_normal((5, 80)) + 50).astype(np.float32)
    score = sfda(features=features, labels=labels)
    assert np.log(1 / 4) < score <= 0


@pytest.mark.parametrize("signal", [0.3, 3.0])
def test_few_or_many_samples_that_move_give_the_same(signal):
    inputs = task(samples=200, dimensions=5, signal=signal)
    features = 0.4 * inputs["features"]
    expected = sfda_dense(features, inputs["labels"])
    np.testing.assert_allclose(
        sfda(features=features, labels=inputs["labels"]), expected, rtol=1e-6, atol=1e-9
    )
