"""The paper's method: value, costs of Tab. 8, schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.distill.losses import Probe
from preceptor.distill.losses.class_costs import class_costs
from preceptor.distill.losses.sinkhorn import schedule_factor
from preceptor.distill.recipe import RECIPES
from tests.distill.losses.cases import OTHER_CLASSES, STUDENT_CLASSES, build, make_context, make_step
from tests.oracles import distill as oracle

SUPERCLASSES = {
    "car": "vehicle",
    "ship": "vehicle",
    "tram": "vehicle",
    "owl": "animal",
    "cat": "animal",
    "dog": "pet",
}


def numpy_centers(context):
    outputs = context.train_outputs
    return np.stack([outputs.features[outputs.labels == c].mean(axis=0) for c in range(3)])


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def euclidean(first, second):
    return np.array([[np.linalg.norm(a - b) for b in second] for a in first])


def test_value_is_eq_11():
    context = make_context(same=False)
    step = make_step("sinkhorn", context)
    cost = euclidean(unit(context.teacher_classifier.double().numpy()), unit(numpy_centers(context)))
    method = build("sinkhorn", context, **RECIPES["paper"].method_options["sinkhorn"])
    np.testing.assert_allclose(method.cost.numpy(), cost, rtol=1e-5)
    terms = method(step)
    student, teacher = step.student.logits.numpy(), step.teacher.logits.numpy()
    expected = 10 * oracle.sinkhorn(teacher, student, method.cost.numpy(), temperature=3.0, epsilon=0.1)
    np.testing.assert_allclose(float(terms["sinkhorn"]), expected, rtol=1e-6)
    np.testing.assert_allclose(
        float(terms["task"]), oracle.cross_entropy(student, step.targets.numpy()), rtol=1e-6
    )


def test_by_default_centres_are_centred_and_the_weight_falls_to_nothing():
    context = make_context(same=False)
    rows, means = unit(context.teacher_classifier.double().numpy()), numpy_centers(context)
    cost = euclidean(unit(rows - rows.mean(axis=0)), unit(means - means.mean(axis=0)))
    method = build("sinkhorn", context)
    np.testing.assert_allclose(method.cost.numpy(), cost, rtol=1e-5)
    terms = [method(make_step("sinkhorn", context, progress=p))["sinkhorn"] for p in (0.0, 0.5, 1.0)]
    torch.testing.assert_close(torch.stack(terms), terms[0] * torch.tensor([1, 0.5, 0], dtype=terms[0].dtype))


def test_gradient_has_the_factor_that_the_paper_leaves_out():
    # (β − ⟨β, p_S⟩) p_S / τ, notes 1: doubling τ at fixed p halves it.
    context = make_context(same=False)
    gradients = []
    for temperature in (1.5, 3.0):
        step = make_step("sinkhorn", context)
        logits = (temperature * step.student.logits).requires_grad_()
        teacher = replace(step.teacher, logits=temperature * step.teacher.logits)
        step = replace(step, student=replace(step.student, logits=logits), teacher=teacher)
        term = build("sinkhorn", context, temperature=temperature)(step)["sinkhorn"]
        gradients.append(torch.autograd.grad(term, logits)[0])
    torch.testing.assert_close(gradients[0], 2 * gradients[1])


def test_a_nan_row_does_not_stop_its_neighbours():
    context = make_context(same=False)
    step = make_step("sinkhorn", context)
    method = build("sinkhorn", context)
    expected = method.transport(step.teacher.logits, step.student.logits)
    logits = step.student.logits.clone()
    logits[2, 1] = torch.nan
    values = method.transport(step.teacher.logits, logits)
    assert values.isnan().tolist() == [False, False, True, False, False, False]
    torch.testing.assert_close(values[[0, 1, 3, 4, 5]], expected[[0, 1, 3, 4, 5]])


def test_constant_cost_goes_by_name():
    cost = build("sinkhorn", make_context(same=False), cost="constant").cost
    owl = OTHER_CLASSES.index("owl"), STUDENT_CLASSES.index("owl")
    expected = torch.ones(4, 3, dtype=torch.float64)
    expected[owl] = 0
    torch.testing.assert_close(cost, expected)


def test_superclass_cost():
    cost = build("sinkhorn", make_context(same=False), cost="superclass", superclasses=SUPERCLASSES).cost
    expected = [[1, 1, 1], [0, 1, 0], [1, 1, 1], [1, 1, 1]]  # owl and cat are animals
    torch.testing.assert_close(cost, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["random", "shallow"])
def test_given_costs(kind):
    matrix = torch.arange(12.0).reshape(4, 3) / 10
    method = build("sinkhorn", make_context(same=False), cost=kind, matrix=matrix)
    torch.testing.assert_close(method.cost, matrix.double())
    for same in (matrix.numpy(), matrix.tolist()):
        other = build("sinkhorn", make_context(same=False), cost=kind, matrix=same)
        torch.testing.assert_close(other.cost, method.cost)
    matrix.zero_()  # a copy was kept
    assert float(method.cost.max()) > 1


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_data_centers(normalize, center):
    context = make_context(same=False)
    teacher, student = context.teacher_centers.double().numpy(), numpy_centers(context)
    if center:
        teacher, student = teacher - teacher.mean(axis=0), student - student.mean(axis=0)
    if normalize:
        teacher, student = unit(teacher), unit(student)
    cost = build("sinkhorn", context, centers="data", normalize=normalize, center=center).cost
    np.testing.assert_allclose(cost.numpy(), euclidean(teacher, student), rtol=1e-5)


def test_a_teacher_to_which_all_classes_look_alike_is_1_away_from_each():
    context = make_context(same=False)
    alike = replace(context.train_outputs, features=np.ones_like(context.train_outputs.features))
    costs = class_costs(replace(context, train_outputs=alike), center=True)
    torch.testing.assert_close(costs.between, torch.ones_like(costs.between))
    rows = torch.zeros_like(context.teacher_classifier)
    costs = class_costs(replace(context, teacher_classifier=rows), center=False)
    torch.testing.assert_close(costs.between, torch.ones_like(costs.between))


def test_predicted_centers():
    context = make_context(same=False)
    outputs = context.train_outputs
    shares = oracle.softmax(outputs.logits)
    teacher = np.stack([(shares[:, [c]] * outputs.features).sum(0) / shares[:, c].sum() for c in range(4)])
    cost = build("sinkhorn", context, centers="predicted", normalize=False, center=False).cost
    np.testing.assert_allclose(cost.numpy(), euclidean(teacher, numpy_centers(context)), rtol=1e-5)


@pytest.mark.parametrize("scale", ["max", "mean", "std"])
def test_scaled_costs(scale):
    context = make_context(same=False)
    plain = build("sinkhorn", context).cost
    scaled = build("sinkhorn", context, scale_cost=scale).cost
    spread = {"max": plain.max(), "mean": plain.mean(), "std": plain.std(correction=0)}[scale]
    torch.testing.assert_close(scaled, plain / spread)


def test_divergence_vanishes_where_both_sides_agree():
    context = make_context()
    step = make_step("sinkhorn", context)
    logits = step.student.logits[:, [2, 0, 1]]
    same = replace(step, teacher=replace(step.teacher, logits=logits))
    method = build("sinkhorn", context, cost="constant", value="divergence", epsilon=0.5)
    np.testing.assert_allclose(float(method(same)["sinkhorn"]), 0, atol=1e-6)
    assert float(method(step)["sinkhorn"]) > 0.1


def test_divergence_takes_off_half_of_both_self_distances():
    context = make_context(same=False)
    step = make_step("sinkhorn", context)
    options = {"weight": 1.0, "temperature": 3.0, "epsilon": 0.5, "schedule": "constant"}
    method = build("sinkhorn", context, value="divergence", **options)
    student = oracle.softmax(step.student.logits.numpy(), 3.0)
    teacher = oracle.softmax(step.teacher.logits.numpy(), 3.0)

    def mean_value(first, second, cost):
        pairs = zip(first, second, strict=True)
        return np.mean([oracle.entropic_value(p, q, cost.numpy(), 0.5)[0] for p, q in pairs])

    expected = mean_value(teacher, student, method.cost)
    expected -= 0.5 * mean_value(teacher, teacher, method.teacher_cost)
    expected -= 0.5 * mean_value(student, student, method.student_cost)
    np.testing.assert_allclose(float(method(step)["sinkhorn"]), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear-decay", [1, 0.75, 0.5, 0]),
        ("cosine-decay", [1, (1 + np.sqrt(0.5)) / 2, 0.5, 0]),
        ("warmup", [0, 1, 1, 1]),
    ],
)
def test_schedules(schedule, factors):
    context = make_context(same=False)
    full = build("sinkhorn", context, schedule="constant")(make_step("sinkhorn", context))["sinkhorn"]
    method = build("sinkhorn", context, schedule=schedule)
    for progress, factor in zip((0.0, 0.25, 0.5, 1.0), factors, strict=True):
        terms = method(make_step("sinkhorn", context, progress=progress))
        np.testing.assert_allclose(float(terms["sinkhorn"]), factor * float(full), atol=1e-9)
    assert schedule_factor("warmup", 0.05) == pytest.approx(0.5)
    slow = build("sinkhorn", context, schedule="warmup", warmup=1.0)(
        make_step("sinkhorn", context, progress=0.5)
    )
    np.testing.assert_allclose(float(slow["sinkhorn"]), float(full) / 2, atol=1e-9)


@pytest.mark.parametrize("scale", ["max", "mean", "std"])
def test_forbidden_pairs_have_no_part_in_the_scale_of_the_cost(scale):
    matrix = np.random.default_rng(0).random((4, 3))
    matrix[1, 2] = np.inf
    method = build("sinkhorn", make_context(same=False), cost="shallow", matrix=matrix, scale_cost=scale)
    allowed = matrix[np.isfinite(matrix)]
    np.testing.assert_allclose(method.cost.numpy(), matrix / getattr(np, scale)(allowed), rtol=1e-6)


def test_sinkhorn_and_probe_is_the_sum_of_both():
    context = make_context(same=False)
    probe = Probe(torch.ones(3, 5), torch.arange(3.0), 0.0)
    options = {"weight": 7.0, "temperature": 5.0, "schedule": "linear-decay", "scale_cost": "mean"}
    both = build("sinkhorn+probe", context, probe=probe, probe_weight=0.5, **options)
    step = make_step("sinkhorn+probe", context)
    terms = both(step)
    torch.testing.assert_close(terms["sinkhorn"], build("sinkhorn", context, **options)(step)["sinkhorn"])
    alone = build("probe-kd", context, probe=probe, weight=0.5)(step)["probe"]
    torch.testing.assert_close(terms["probe"], 0.5 * alone)  # linear decay, half way


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"cost": "dear"},
            "cost 'dear' is unknown; expected one of teacher, constant, random, superclass, shallow",
        ),
        ({"centers": "left"}, "centers 'left' is unknown; expected one of classifier, data, predicted"),
        ({"scale_cost": "min"}, "scale_cost 'min' is unknown; expected one of none, max, mean, std"),
        ({"value": "primal"}, "value 'primal' is unknown; expected one of entropic, divergence"),
        ({"schedule": "up"}, "weight schedule 'up' is unknown; expected one of constant, linear-decay"),
        ({"cost": "superclass"}, "cost superclass needs superclasses, a mapping from class to superclass"),
        (
            {"cost": "superclass", "superclasses": {"cat": "pet"}},
            "superclasses says nothing about car, dog, owl",
        ),
        ({"cost": "shallow"}, r"cost shallow needs matrix, the costs \(4, 3\) from another network"),
        (
            {"cost": "random", "matrix": torch.ones(3, 4)},
            r"matrix has shape \(3, 4\); expected teacher classes",
        ),
        (
            {"cost": "shallow", "matrix": torch.ones(4, 3), "value": "divergence"},
            "value divergence needs costs within each class set",
        ),
        (
            {"cost": "shallow", "matrix": torch.ones(4, 3), "scale_cost": "std"},
            "divides by the cost's std, which is 0",
        ),
        ({"matrix": torch.ones(4, 3)}, "matrix came, and cost teacher does not look at it; use cost shallow"),
        ({"superclasses": SUPERCLASSES}, "superclasses came, and cost teacher does not look at it"),
        ({"cost": "constant", "centers": "data"}, "centers 'data' came, and cost constant has no centres"),
        ({"cost": "random", "matrix": "abc"}, r"matrix is a str that is no table .* or array \(4, 3\)"),
        ({"cost": "random", "matrix": [[1, 2], [3]]}, "matrix is a list that is no table of numbers"),
        ({"cost": "random", "matrix": np.full((4, 3), np.nan)}, "matrix has NaN, -inf or no finite cost"),
        ({"cost": "random", "matrix": torch.full((4, 3), torch.inf)}, "matrix has NaN, -inf or no finite"),
        ({"warmup": 0.2}, "warmup came, and schedule linear-decay does not look at it"),
        ({"schedule": "warmup", "warmup": -1}, "warmup is -1; expected a share of training above 0, 1 at"),
        ({"schedule": "warmup", "warmup": 2.0}, "warmup is 2.0; expected a share"),
        ({"temperature": 0.0}, "temperature is 0.0; expected a finite number above 0"),
        ({"epsilon": -0.1}, "epsilon is -0.1; expected a finite number"),
    ],
)
def test_refused_options(options, text):
    with pytest.raises(PreceptorError, match=text):
        build("sinkhorn", make_context(same=False), **options)


@pytest.mark.parametrize(
    ("missing", "options", "text"),
    [
        ("train_outputs", {}, "class centres need the teacher's outputs over the training set"),
        ("teacher_classifier", {}, r"teacher's last layer .* nn\.Linear as attribute `classifier`"),
        ("teacher_centers", {"centers": "data"}, "centers data needs the teacher's stored class centres"),
    ],
)
def test_missing_ingredients_are_named(missing, options, text):
    with pytest.raises(PreceptorError, match=text):
        build("sinkhorn", replace(make_context(same=False), **{missing: None}), **options)
