import numpy as np
import pytest

from preceptor.metrics import scatter as shared
from preceptor.metrics.hscore import hscore
from tests.metrics.rival_cases import HARD, task
from tests.oracles.rivals import hscore_dense


@pytest.mark.parametrize("shape", [(120, 8), (40, 40), (30, 100), (600, 300), (50, 1)])
def test_agrees_with_dense_matrices_and_sklearns_shrinkage(shape):
    inputs = task(samples=shape[0], dimensions=shape[1])
    np.testing.assert_allclose(
        hscore(**inputs), hscore_dense(inputs["features"], inputs["labels"]), rtol=1e-8
    )


@pytest.mark.parametrize(
    "case", ["one-sample classes", "duplicates", "one constant dimension", "N = 2", "huge"]
)
def test_agrees_on_hard_inputs(case):
    features, labels = HARD[case]["features"], HARD[case]["labels"]
    score = hscore(features=features, labels=labels)
    np.testing.assert_allclose(score, hscore_dense(features, labels), rtol=1e-6, atol=1e-9)


def test_separated_classes_reach_their_number_less_one():
    labels = np.arange(400) % 4
    noise = np.random.default_rng(0).standard_normal((400, 6))
    score = hscore(features=1e3 * np.eye(6)[labels] + noise, labels=labels)
    assert 2.9 < score < 3


def test_shrinkage_keeps_random_labels_low_when_dimensions_abound():
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((60, 500)), np.arange(60) % 5
    assert hscore(features=features, labels=labels) < 1  # without shrinkage it is 4, the largest possible


def test_scale_and_rotation_do_not_matter():
    inputs = task()
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    moved = 40 * inputs["features"] @ turn + 3
    np.testing.assert_allclose(hscore(features=moved, labels=inputs["labels"]), hscore(**inputs), rtol=1e-8)


def test_constant_features_score_zero():
    assert hscore(**HARD["constant features"]) == 0


def test_low_rank_features_in_single_precision(monkeypatch):
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 4
    points = generator.standard_normal((200, 5)) + labels[:, None]
    features = (points @ generator.standard_normal((5, 80))).astype(np.float32)
    expected = hscore_dense(features, labels)
    monkeypatch.setattr(shared, "SINGLE_PRECISION_FROM", 0)
    np.testing.assert_allclose(hscore(features=features, labels=labels), expected, rtol=1e-3)
