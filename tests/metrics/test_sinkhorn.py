import inspect

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, sinkhorn, sinkhorn_assessment, sinkhorn_between
from preceptor.ot import class_centers, cost_matrix
from tests.metrics.rival_cases import task
from tests.oracles.metrics import centre_distances, converged_probe, softened, transport


@pytest.fixture(scope="module")
def inputs():
    return task(40, 8, classes=4, sources=6)


@pytest.fixture(scope="module")
def assessment(inputs):
    return sinkhorn_assessment(**inputs)


def slow_way(inputs, student_logits, epsilon=0.1, temperature=3.0):
    """Eq. (24) instance by instance in float64."""
    cost = centre_distances(inputs["classifier"], inputs["features"], inputs["labels"])
    p, q = softened(inputs["logits"], temperature), softened(student_logits, temperature)
    values, plans = zip(*(transport(a, b, cost, epsilon) for a, b in zip(p, q, strict=True)), strict=True)
    return np.array(values), np.mean(plans, axis=0), cost


def test_agrees_with_scikit_learn_and_one_transport_after_the_other(inputs, assessment):
    logits, _ = converged_probe(inputs["features"], inputs["labels"])
    values, plan, cost = slow_way(inputs, logits)
    tight = sinkhorn_assessment(**inputs, probe_tolerance=1e-5, tolerance=1e-6)
    np.testing.assert_allclose(tight.score, -values.mean(), atol=2e-5)
    np.testing.assert_allclose(tight.cost, cost, atol=1e-7)
    np.testing.assert_allclose(tight.plan, plan, atol=1e-4)
    np.testing.assert_allclose(tight.transport_cost, (plan * cost).sum(), atol=1e-4)
    assert tight.probe_accuracy == (logits.argmax(axis=1) == inputs["labels"]).mean()
    assert tight.converged == 1
    np.testing.assert_allclose(assessment.score, tight.score, rtol=2e-3)  # what the defaults cost


@pytest.mark.parametrize("options", [{"epsilon": 0.5}, {"temperature": 1.0}])
def test_options_reach_the_transport(inputs, options):
    student_logits = inputs["logits"][:, :4] * 0.5
    found = sinkhorn_between(**inputs, student_logits=student_logits, **options)
    values, plan, _ = slow_way(inputs, student_logits, **options)
    np.testing.assert_allclose(found.instance_values, values, atol=1e-4)
    np.testing.assert_allclose(found.plan, plan, atol=1e-3)
    assert found.probe_accuracy is None


def test_the_parts_belong_together(inputs, assessment):
    np.testing.assert_allclose(assessment.score, -assessment.instance_values.mean(), rtol=1e-12)
    np.testing.assert_allclose(assessment.plan.sum(), 1, atol=1e-6)
    np.testing.assert_allclose(
        assessment.plan.sum(axis=1), softened(inputs["logits"]).mean(axis=0), atol=1e-6
    )
    assert sinkhorn(**inputs) == assessment.score
    assert assessment.instance_values.shape == (40,)


def test_a_loose_tolerance_moves_the_value_by_its_square(inputs):
    values = [sinkhorn(**inputs, tolerance=tolerance) for tolerance in (1e-3, 1e-2, 1e-6)]
    np.testing.assert_allclose(values[0], values[2], atol=2e-6)
    np.testing.assert_allclose(values[1], values[2], atol=2e-4)


def test_a_teacher_of_the_same_classes_beats_shuffled_rows(inputs):
    features, labels = inputs["features"], inputs["labels"]
    means = np.stack([features[labels == c].mean(axis=0) for c in range(4)])
    logits = -((features[:, None] - means) ** 2).sum(axis=2)
    right = sinkhorn(features=features, labels=labels, logits=logits, classifier=means)
    wrong = sinkhorn(features=features, labels=labels, logits=logits, classifier=means[[1, 2, 3, 0]])
    assert right > wrong + 0.01


def test_given_centres_go_before_classifier_rows(inputs):
    other = np.random.default_rng(5).standard_normal((6, 8))
    expected = sinkhorn(**{**inputs, "classifier": other})
    assert sinkhorn(**inputs, centers=other) == expected != sinkhorn(**inputs)
    assert sinkhorn_assessment(**{**inputs, "classifier": None}, centers=other).score == expected


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_cost_is_that_of_the_transport_core(inputs, normalize, center):
    options = {"normalize": normalize, "center": center}
    features, labels = torch.from_numpy(inputs["features"]), torch.from_numpy(inputs["labels"])
    expected = cost_matrix(
        torch.from_numpy(inputs["classifier"]), class_centers(features, labels, 4), **options
    )
    found = sinkhorn_assessment(**inputs, **options).cost
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-7)


def test_centring_takes_out_what_all_samples_share(inputs):
    raw = sinkhorn_assessment(**inputs, normalize=False, center=False).cost
    means = np.stack([inputs["features"][inputs["labels"] == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(raw[2, 1], np.linalg.norm(inputs["classifier"][2] - means[1]), rtol=1e-6)
    shifted = {**inputs, "features": inputs["features"] + 3.0}
    first, second = (sinkhorn_assessment(**each, center=True).cost for each in (inputs, shifted))
    np.testing.assert_allclose(first, second, rtol=1e-6)


def test_a_class_at_the_origin_is_one_away_from_the_sphere(inputs):
    features = np.where(inputs["labels"][:, None] == 2, 0.0, inputs["features"])
    found = sinkhorn_assessment(**{**inputs, "features": features}, center=False)
    np.testing.assert_allclose(found.cost[:, 2], 1)


def test_pairs_name_the_class_that_gives_most(assessment):
    teachers, students = [f"t{i}" for i in range(6)], [f"s{i}" for i in range(4)]
    pairs = assessment.pairs(teachers, students, top=None)
    assert sorted(pair.student for pair in pairs) == students
    assert [pair.share for pair in pairs] == sorted((pair.share for pair in pairs), reverse=True)
    for pair in pairs:
        column = students.index(pair.student)
        row = assessment.plan[:, column].argmax()
        assert pair.teacher == teachers[row]
        np.testing.assert_allclose(
            pair.share, assessment.plan[row, column] / assessment.plan[:, column].sum()
        )
        assert pair.cost == assessment.cost[row, column]
    assert assessment.pairs(teachers, students, top=2) == pairs[:2]
    with pytest.raises(PreceptorError, match="5 teacher and 4 student class names came; expected 6 and 4"):
        assessment.pairs(teachers[:5], students)


def test_single_and_exact_take_a_students_logits(inputs):
    student_logits = inputs["logits"][:, :4]
    expected = sinkhorn_between(**inputs, student_logits=student_logits).score
    for name in ("sinkhorn-single", "sinkhorn-exact"):
        assert METRICS[name](**inputs, student_logits=student_logits) == expected
        assert "student_logits" in inspect.signature(METRICS[name]).parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.arange(40) % 3 * 2}, r"class 1 has no sample \(2 of 5 classes have none\)"),
        (
            {"labels": np.arange(40) % 2, "student_classes": ("cat", "dog", "owl")},
            "class 'owl' has no sample",
        ),
        ({"student_classes": ("cat", "dog")}, "labels go up to 3; expected less than 2"),
        ({"classifier": np.ones((5, 8))}, "classifier has 5 rows; expected 6"),
        ({"centers": np.ones((6, 7))}, "centers has 7 columns; expected 8"),
        ({"logits": np.ones((39, 6))}, "logits has 39 rows; expected 40"),
        ({"features": np.full((40, 8), np.nan)}, "features has NaN or infinite values in 40 of 40 rows"),
        ({"labels": np.full(40, 0.5)}, "labels are of type float64; expected whole numbers"),
        ({"labels": np.full(40, -1)}, "labels go from -1 to -1; expected class indices from 0 on"),
        ({"classifier": None}, "neither classifier nor centers came"),
    ],
)
def test_errors(inputs, change, message):
    with pytest.raises(PreceptorError, match=message):
        sinkhorn(**{**inputs, **change})
