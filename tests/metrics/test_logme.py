import numpy as np
import pytest

from preceptor.metrics import logme
from preceptor.metrics.inputs import compact_labels, one_hot
from preceptor.metrics.logme import LARGEST_PRECISION
from preceptor.metrics.scatter import forget
from preceptor.metrics.spectrum import spectrum
from tests.metrics.rival_cases import HARD, task
from tests.oracles.metrics import greatest_log_evidence


def oracle(features, labels):
    indices, classes = compact_labels(labels, len(features))
    targets = one_hot(indices, classes).T
    return np.mean([greatest_log_evidence(features, target) for target in targets])


@pytest.mark.parametrize("shape", [(60, 8), (25, 60), (30, 30), (40, 1)])
@pytest.mark.parametrize("signal", [0.1, 1.5])
def test_agrees_with_direct_maximisation(shape, signal):
    inputs = task(*shape, classes=3, signal=signal)
    np.testing.assert_allclose(logme(**inputs), oracle(inputs["features"], inputs["labels"]), atol=1e-5)


@pytest.mark.parametrize(
    "case",
    ["one-sample classes", "one class", "constant features", "zero features", "duplicates", "d = 1", "N = 2"],
)
def test_agrees_on_hard_inputs(case):
    inputs = HARD[case]
    np.testing.assert_allclose(logme(**inputs), oracle(inputs["features"], inputs["labels"]), atol=2e-4)


def test_a_hundred_samples_in_2048_dimensions_have_less_evidence_than_a_density_of_one():
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((100, 2048)), np.arange(100) % 10
    assert logme(features=features, labels=labels) < 0


def test_zero_columns_change_nothing_and_neither_does_a_rotation():
    inputs = task(40, 10)
    expected = logme(**inputs)
    padded = np.hstack([inputs["features"], np.zeros((40, 90))])  # N < d, so the other way of computing
    np.testing.assert_allclose(logme(features=padded, labels=inputs["labels"]), expected, rtol=1e-6)
    turn, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((100, 100)))
    np.testing.assert_allclose(logme(features=padded @ turn, labels=inputs["labels"]), expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_does_not_matter(scale):
    inputs = task(50, 6)
    np.testing.assert_allclose(
        logme(features=inputs["features"] * scale, labels=inputs["labels"]), logme(**inputs), rtol=1e-6
    )


def test_labels_that_fit_exactly_reach_the_stated_limit():
    labels = np.arange(4000) % 2
    value = logme(features=np.eye(2)[labels], labels=labels)
    limit = 0.5 * np.log(LARGEST_PRECISION / (2 * np.pi))  # of many samples: the other terms vanish
    np.testing.assert_allclose(value, limit, atol=0.02)


def test_single_precision_agrees(monkeypatch):
    inputs = task(600, 64, classes=5, dtype=np.float32)
    expected = logme(**inputs)
    monkeypatch.setattr("preceptor.metrics.scatter.SINGLE_PRECISION_FROM", 0)
    forget()
    np.testing.assert_allclose(logme(**inputs), expected, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_what_single_precision_leaves_of_an_empty_direction_is_noise(monkeypatch, offset):
    generator = np.random.default_rng(0)
    labels = np.arange(3000) % 5
    inner = generator.standard_normal((3000, 20)) + 0.5 * generator.standard_normal((5, 20))[labels]
    features = (inner @ generator.standard_normal((20, 64)) + offset).astype(np.float32)
    exact, expected = spectrum(features, labels, 5), logme(features=features, labels=labels)
    monkeypatch.setattr("preceptor.metrics.scatter.SINGLE_PRECISION_FROM", 0)
    forget()
    found = spectrum(features, labels, 5)
    assert (found.values > 0).sum() == 20 + (offset > 0)
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-5)
    np.testing.assert_allclose(logme(features=features, labels=labels), expected, atol=1e-6)
