import numpy as np
import pytest
from scipy.special import softmax

from preceptor.metrics.leep import leep
from preceptor.metrics.nce import nce
from tests.metrics.rival_cases import task
from tests.oracles.rivals import leep_by_loops


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_loops(seed):
    inputs = task(samples=40, seed=seed, signal=0.5)
    expected = leep_by_loops(softmax(inputs["logits"], axis=1).tolist(), inputs["labels"].tolist())
    np.testing.assert_allclose(leep(**inputs), expected, rtol=1e-12)


def test_on_one_hot_predictions_it_equals_nce():
    inputs = task(signal=0.5)
    certain = 1e4 * np.eye(6)[inputs["logits"].argmax(axis=1)]
    np.testing.assert_allclose(leep(logits=certain, labels=inputs["labels"]), nce(**inputs), rtol=1e-12)


def test_a_source_class_of_no_mass_changes_nothing():
    inputs = task()
    empty = np.full((120, 2), -1e5)
    score = leep(logits=np.hstack([empty, inputs["logits"]]), labels=inputs["labels"])
    np.testing.assert_allclose(score, leep(**inputs), rtol=1e-12)


def test_predictions_that_say_nothing_score_the_entropy_of_the_labels_negated():
    labels = np.repeat([0, 1, 2], [10, 20, 30])
    shares = np.array([1, 2, 3]) / 6
    np.testing.assert_allclose(leep(logits=np.zeros((60, 5)), labels=labels), (shares * np.log(shares)).sum())


def test_an_offset_of_the_logits_does_not_matter():
    inputs = task()
    moved = inputs["logits"] + np.linspace(-700, 700, 120)[:, None]
    np.testing.assert_allclose(leep(logits=moved, labels=inputs["labels"]), leep(**inputs), rtol=1e-10)


def test_float32_keeps_six_digits_on_many_samples():
    inputs = task(samples=20_000, dimensions=16, classes=10, sources=50)
    single = leep(logits=inputs["logits"].astype(np.float32), labels=inputs["labels"])
    np.testing.assert_allclose(single, leep(**inputs), rtol=1e-6)
