import numpy as np
import pytest

from preceptor.metrics.nce import nce
from tests.metrics.rival_cases import task
from tests.oracles.rivals import nce_by_counting


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_counting(seed):
    inputs = task(seed=seed, signal=0.5)
    expected = nce_by_counting(inputs["logits"].argmax(axis=1).tolist(), inputs["labels"].tolist())
    np.testing.assert_allclose(nce(**inputs), expected, rtol=1e-12)


def test_perfect_predictions_score_zero_whatever_their_names():
    labels = np.arange(40) % 4
    logits = np.eye(6)[np.array([5, 2, 0, 3])[labels]]
    assert nce(logits=logits, labels=labels) == 0


def test_constant_predictions_score_the_entropy_of_the_labels_negated():
    labels = np.repeat([0, 1, 2], [10, 20, 30])
    shares = np.array([1, 2, 3]) / 6
    expected = (shares * np.log(shares)).sum()
    np.testing.assert_allclose(nce(logits=np.ones((60, 1)), labels=labels), expected, rtol=1e-12)


def test_only_the_largest_logit_counts():
    inputs = task()
    stretched = np.sinh(inputs["logits"])
    assert nce(logits=stretched, labels=inputs["labels"]) == nce(**inputs)
