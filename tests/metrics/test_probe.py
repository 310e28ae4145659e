from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut, PredefinedSplit, cross_val_predict

from preceptor.metrics import probe
from preceptor.metrics.lbfgs import minimize, minimize_together
from preceptor.metrics.linear_probe import fit_probe, prepare
from preceptor.metrics.probe import _deal
from preceptor.metrics.problem import ClassTerms, Preconditioner, Problem
from preceptor.metrics.sampling import content_hash
from preceptor.metrics.scatter import scatter
from tests.metrics.rival_cases import task
from tests.oracles.metrics import converged_probe, probe_loss, scaled

module = import_module("preceptor.metrics.probe")  # the package holds the function of that name

SHAPES = {
    "N > d": {"samples": 300, "dimensions": 20},
    "N < d": {"samples": 60, "dimensions": 150},
    "N = d": {"samples": 50, "dimensions": 50},
    "d = 1": {"samples": 80, "dimensions": 1},
    "easy": {"samples": 200, "dimensions": 30, "signal": 6.0},
    "hard": {"samples": 200, "dimensions": 30, "signal": 0.0},
    "many classes": {"samples": 240, "dimensions": 40, "classes": 60},
    "one sample a class": {"samples": 30, "dimensions": 10, "classes": 30},
}


def design_of(inputs):
    features, labels = inputs["features"], inputs["labels"]
    return prepare(*scatter(features, labels, int(labels.max()) + 1))


def fit(inputs, **options):
    return fit_probe(design_of(inputs), inputs["labels"], **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_is_within_a_percent_of_a_converged_fit(shape, dtype):
    inputs = task(**SHAPES[shape], dtype=dtype)
    fitted = fit(inputs)
    logits, loss = converged_probe(inputs["features"], inputs["labels"])
    assert fitted.converged
    assert loss * (1 - 1e-5) <= fitted.loss <= loss * 1.01
    assert fitted.loss - loss <= fitted.gap + 1e-6  # the gap is a bound
    entropies = (converged_cross_entropy(x, inputs["labels"]) for x in (fitted.logits.numpy(), logits))
    np.testing.assert_allclose(*entropies, rtol=0.01)


def converged_cross_entropy(logits, labels):
    return probe_loss(logits.astype(np.float64), np.zeros(1), labels)


@pytest.mark.parametrize("strength", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("shape", ["N > d", "N < d"])
def test_tight_tolerance_gives_the_same_model(shape, strength):
    inputs = task(**SHAPES[shape])
    fitted = fit(inputs, tolerance=1e-5, strength=strength, max_iterations=1000)
    logits, _ = converged_probe(inputs["features"], inputs["labels"], strength)
    probabilities = torch.softmax(fitted.logits, dim=1).numpy()
    expected = torch.softmax(torch.from_numpy(logits), dim=1).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=2e-3)


@pytest.mark.parametrize("shape", ["N > d", "N < d"])
def test_stated_loss_and_weights_belong_together(shape):
    inputs = task(**SHAPES[shape])
    fitted, x = fit(inputs), design_of(inputs).values.double().numpy()
    weight, bias = fitted.parameters[:-1].double().numpy(), fitted.parameters[-1].double().numpy()
    logits = fitted.logits.double().numpy()
    np.testing.assert_allclose(x @ weight + bias, logits, atol=1e-4)
    np.testing.assert_allclose(probe_loss(logits, weight, inputs["labels"]), fitted.loss, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_design_is_the_scaled_features_up_to_a_rotation(shape):
    inputs = task(**SHAPES[shape])
    design, expected = design_of(inputs), scaled(inputs["features"])
    x, labels = design.values.double().numpy(), inputs["labels"]
    np.testing.assert_allclose(x @ x.T, expected @ expected.T, atol=1e-5)
    np.testing.assert_allclose(design.gram, x.T @ x / len(x), atol=1e-6)
    for label, total in enumerate(design.sums.numpy()):
        np.testing.assert_allclose(total, x[labels == label].sum(axis=0), atol=1e-4)


@pytest.mark.parametrize("shape", ["N > d", "N < d", "easy"])
def test_no_multiple_of_the_weights_is_better(shape):
    inputs = task(**SHAPES[shape])
    fitted = fit(inputs, tolerance=0.3, max_iterations=3)
    x, weight = design_of(inputs).values.double().numpy(), fitted.parameters[:-1].double().numpy()
    bias = fitted.parameters[-1].double().numpy()

    def loss(scale):
        return probe_loss(scale * x @ weight + bias, scale * weight, inputs["labels"])

    for scale in (0.95, 1.05):
        assert loss(scale) > loss(1.0)


def test_rows_in_blocks_are_the_same_problem():
    inputs = task(**SHAPES["N > d"])
    design, own = design_of(inputs), torch.from_numpy(inputs["labels"])[:, None]
    blocks = (design.values[:70], design.values[70:71], design.values[71:])
    problem = Problem(blocks, own, design.sums, 1 / (10 * 300), design.preconditioner(10))
    found, expected = minimize(problem, 0.01, 200), fit(inputs)
    torch.testing.assert_close(found.parameters, expected.parameters, atol=1e-3, rtol=1e-3)


def test_problems_solved_together_know_nothing_of_each_other():
    """One converges long before the other, and one block is theirs alone: still each is as if alone."""
    inputs = task(**SHAPES["N > d"])
    design, own = design_of(inputs), torch.from_numpy(inputs["labels"])[:, None]
    model, cuts = design.preconditioner(10), (slice(0, 90), slice(90, 200), slice(200, 300))
    problems = []
    for parts, penalty in ((cuts[:2], 1.0), (cuts[1:], 1e-4), ((cuts[0], cuts[2]), 1e-2)):
        labels = torch.cat([own[part] for part in parts])
        rows = torch.cat([design.values[part] for part in parts])
        sums = torch.zeros(4, 20).index_add(0, labels[:, 0], rows)
        problems.append(Problem(tuple(design.values[part] for part in parts), labels, sums, penalty, model))
    together = minimize_together(problems, 0.01, 200)
    assert len({found.iterations for found in together}) > 1
    for problem, found in zip(problems, together, strict=True):
        alone = minimize(problem, 0.01, 200)
        assert found.iterations == alone.iterations
        torch.testing.assert_close(found.parameters, alone.parameters, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(found.logits, alone.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", ["N > d", "N < d", "many classes"])
def test_folds_at_a_time_do_not_matter(monkeypatch, shape):
    inputs = task(**SHAPES[shape] | {"signal": 0.3})
    found = []
    for together in (1, 2, 8):
        monkeypatch.setattr(module, "TOGETHER", together)
        found.append(probe(**inputs, tolerance=1e-4))
    assert found[0] == found[1] == found[2]


def test_a_singular_gram_matrix_can_precondition():
    gram = torch.zeros(3, 3)
    gram[0, 0] = 1
    step = Preconditioner.of(gram, 4, 0.0)(torch.ones(4, 2))
    assert torch.isfinite(step).all()
    torch.testing.assert_close(step[0], step[3])  # a variance of 1, and the bias


def test_each_class_has_a_term_of_its_own_in_the_model():
    generator = torch.Generator().manual_seed(0)
    rows, pulls = torch.randn(30, 6, generator=generator), torch.randn(6, 3, generator=generator)
    gradient, weights = torch.randn(7, 3, generator=generator), torch.tensor([0.5, 2.0, 0.0])
    common = Preconditioner.of(rows.T @ rows / 30, 3, 0.01)
    steps = common(torch.cat([pulls, torch.zeros(1, 3)]))[:-1]
    found = ClassTerms.of(pulls, steps, weights).correct(common(gradient), gradient)
    hessian = common.curvature * (rows.T @ rows / 30 + 0.01 / common.curvature * torch.eye(6))
    for label, (weight, pull) in enumerate(zip(weights, pulls.T, strict=True)):
        own = hessian + weight * torch.outer(pull, pull)
        torch.testing.assert_close(
            found[:-1, label], torch.linalg.solve(own, gradient[:-1, label]), rtol=1e-4, atol=1e-4
        )
    torch.testing.assert_close(found[-1], gradient[-1] / common.curvature)


def test_the_terms_of_the_classes_bring_the_first_step_closer(monkeypatch):
    inputs = task(400, 60, classes=20, signal=0.5)
    gap = fit(inputs, max_iterations=1).gap
    monkeypatch.setattr("preceptor.metrics.lbfgs.OWN_CURVATURE", 0.0)
    assert gap < 0.8 * fit(inputs, max_iterations=1).gap


def test_metrics_share_one_preconditioner_for_a_strength():
    inputs = task(**SHAPES["N > d"])
    first, second = design_of(inputs), design_of(inputs)
    assert first.preconditioner(10.0) is second.preconditioner(10.0)
    assert first.preconditioner(10.0) is not first.preconditioner(1.0)


def test_bias_is_not_penalised():
    labels = np.repeat([0, 1, 2], [90, 9, 1])
    fitted = fit({"features": np.full((100, 3), 0.1, dtype=np.float32), "labels": labels})
    np.testing.assert_allclose(torch.softmax(fitted.logits, dim=1)[0].numpy(), [0.9, 0.09, 0.01], atol=1e-5)
    assert fitted.iterations == 0


def test_scale_offset_and_rotation_do_not_matter():
    inputs = task(**SHAPES["N > d"])
    turn, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((20, 20)))
    moved = {**inputs, "features": (inputs["features"] @ turn) * 1e4 + 1e5}
    np.testing.assert_allclose(fit(moved).logits.numpy(), fit(inputs).logits.numpy(), atol=5e-3)


def test_one_class():
    assert fit({"features": np.eye(4), "labels": np.zeros(4, dtype=np.int64)}).loss == 0


@pytest.mark.parametrize("shape", [(36, 6), (36, 50)])
def test_leave_one_out_agrees_with_scikit_learn(shape):
    inputs = task(*shape, classes=3, signal=1.0)
    x = scaled(inputs["features"])
    model = LogisticRegression(C=10.0, tol=1e-8, max_iter=5000)
    expected = (cross_val_predict(model, x, inputs["labels"], cv=LeaveOneOut()) == inputs["labels"]).mean()
    np.testing.assert_allclose(probe(**inputs, folds=36, tolerance=1e-4), expected)


FOLDS = {
    "N > d": ({"samples": 400, "dimensions": 30, "classes": 5, "signal": 0.4}, 0.01),
    "N < d": ({"samples": 150, "dimensions": 400, "classes": 3, "signal": 0.15}, 0.03),
    "many classes": ({"samples": 600, "dimensions": 60, "classes": 50, "signal": 0.5}, 0.015),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", FOLDS)
def test_five_folds_agree_with_scikit_learn_on_the_same_folds(case, dtype):
    shape, slack = FOLDS[case]
    inputs = task(**shape, dtype=dtype)
    labels, classes = inputs["labels"], int(inputs["labels"].max()) + 1
    folds = PredefinedSplit(_deal(content_hash(inputs["features"]), labels, classes, 5))
    model = LogisticRegression(C=10.0, tol=1e-7, max_iter=5000)
    predicted = cross_val_predict(model, scaled(inputs["features"]), labels, cv=folds)
    expected = (predicted == labels).mean()
    assert 0.2 < expected < 0.95  # neither chance nor perfect: a wrong fold or penalty would show
    np.testing.assert_allclose(probe(**inputs, tolerance=1e-4), expected, atol=1.01 / len(labels))
    np.testing.assert_allclose(probe(**inputs), expected, atol=slack)  # what the default tolerance costs


def test_held_out_samples_do_not_help_themselves():
    """Random labels that the probe fits exactly: whatever leaks from the whole into a fold shows at once."""
    inputs = task(200, 400, classes=4, signal=0.0, seed=5)
    assert fit(inputs).logits.argmax(dim=1).numpy().tolist() == inputs["labels"].tolist()
    assert 0.15 < probe(**inputs) < 0.35


def test_random_labels_score_about_chance():
    inputs = task(400, 10, classes=4, signal=0.0)
    assert 0.15 < probe(**inputs) < 0.35


def test_the_only_sample_of_a_class_counts_as_wrong():
    generator = np.random.default_rng(0)
    labels = np.array([0] * 10 + [1] * 10 + [2, 3])
    features = np.eye(4)[labels] * 9 + generator.standard_normal((22, 4)) * 0.1
    assert probe(features=features, labels=labels) == 20 / 22
    assert probe(features=features[:4], labels=np.arange(4)) == 0


def test_folds_are_even_for_many_small_classes():
    features = np.random.default_rng(0).standard_normal((90, 3))
    labels = np.arange(90) % 45
    folds = _deal(content_hash(features), labels, 45, 5)
    assert np.bincount(folds).tolist() == [18] * 5
    for label in range(45):
        assert len(set(folds[labels == label])) == 2


def test_folds_depend_on_the_samples_and_not_on_the_numbers_of_classes():
    features = np.random.default_rng(0).standard_normal((33, 3))
    labels = np.repeat(np.arange(5), [3, 4, 7, 8, 11])
    expected = _deal(content_hash(features), labels, 5, 5)
    np.testing.assert_array_equal(
        _deal(content_hash(features), np.array([3, 0, 4, 2, 1])[labels], 5, 5), expected
    )
    order = np.random.default_rng(1).permutation(33)
    np.testing.assert_array_equal(_deal(content_hash(features[order]), labels[order], 5, 5), expected[order])


def test_one_thread_and_several_find_the_same_minimum():
    random = np.random.default_rng(3)
    labels = np.arange(120) % 4
    features = random.normal(size=(120, 12)) + 2 * random.normal(size=(4, 12))[labels]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            values, moments = scatter(features.astype(np.float32), labels, 4)
            found.append(fit_probe(prepare(values, moments), labels, tolerance=1e-6).loss)
    finally:
        torch.set_num_threads(before)
    assert found[0] == pytest.approx(found[1], rel=1e-5)
