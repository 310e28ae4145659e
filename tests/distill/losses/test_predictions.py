"""Losses on predictions against numpy: none, kd, ban, sftn, dist, dkd, probe-kd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.distill.losses import Probe, fit_probe
from preceptor.distill.losses.dist import correlation
from tests.distill.losses.cases import build, make_context, make_step
from tests.oracles import distill as oracle

# The student's classes are cat, dog, owl; the teacher's are owl, cat, dog.
ORDER = [1, 2, 0]


def setup(name, **options):
    context = make_context()
    step = make_step(name, context)
    return (
        build(name, context, **options)(step),
        step.student.logits.numpy(),
        step.teacher.logits.numpy()[:, ORDER],
        step,
    )


def close(term, expected):
    np.testing.assert_allclose(float(term), expected, rtol=1e-6, atol=1e-9)


def test_none_is_the_cross_entropy_with_soft_targets():
    terms, student, _, step = setup("none")
    close(terms["task"], oracle.cross_entropy(student, step.targets.numpy()))


@pytest.mark.parametrize(
    ("name", "temperature", "weight", "task_weight"),
    [("kd", 4.0, 0.9, 0.1), ("ban", 1.0, 1.0, 1.0), ("sftn", 4.0, 0.9, 0.1)],
)
def test_kd_by_class_name(name, temperature, weight, task_weight):
    terms, student, teacher, step = setup(name)
    close(terms["kd"], weight * oracle.kd(teacher, student, temperature))
    close(terms["task"], task_weight * oracle.cross_entropy(student, step.targets.numpy()))


def test_kd_vanishes_where_student_and_teacher_agree():
    context = make_context()
    step = make_step("kd", context)
    logits = step.student.logits[:, [2, 0, 1]]  # the student's predictions in the teacher's order
    same = replace(step, teacher=replace(step.teacher, logits=logits))
    close(build("kd", context)(same)["kd"], 0.0)


def test_kd_standardised_ignores_scale_and_offset():
    terms, student, teacher, step = setup("kd", standardize=True, temperature=2.0)

    def standard(logits):
        return (logits - logits.mean(axis=1, keepdims=True)) / logits.std(axis=1, keepdims=True)

    close(terms["kd"], 0.9 * oracle.kd(standard(teacher), standard(student), 2.0))
    stretched = replace(step, teacher=replace(step.teacher, logits=5 * step.teacher.logits - 3))
    again = build("kd", make_context(), standardize=True, temperature=2.0)(stretched)
    torch.testing.assert_close(again["kd"], terms["kd"], rtol=1e-5, atol=1e-6)


def test_dist():
    terms, student, teacher, _ = setup("dist", inter_weight=2.0, intra_weight=3.0)
    inter, intra = oracle.dist(teacher, student, 4.0)
    close(terms["inter"], 2 * inter)
    close(terms["intra"], 3 * intra)


@pytest.mark.parametrize("classes", [1000, 20_000])
def test_dist_of_many_classes_is_still_a_correlation(classes):
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(64, classes, generator=generator)
    student = teacher + 0.1 * torch.randn(64, classes, generator=generator)
    p, q = ((logits / 4).softmax(dim=1) for logits in (teacher, student))
    ones = torch.ones_like(p)
    expected = np.mean([np.corrcoef(*rows)[0, 1] for rows in zip(p.numpy(), q.numpy(), strict=True)])
    np.testing.assert_allclose(float(correlation(p, q, ones, dim=1).mean()), expected, atol=1e-4)
    assert float(correlation(p[:, :50], p[:, :50], ones[:, :50], dim=0).min()) > 0.5
    assert float(correlation(torch.full_like(p, 1 / classes), q, ones, dim=1).abs().max()) < 1e-3


def test_dkd():
    terms, student, teacher, step = setup("dkd")
    target, others = oracle.dkd(teacher, student, step.labels.numpy(), 4.0)
    close(terms["target"], target)
    close(terms["others"], 8 * others)


def test_dkd_with_hintons_weights_is_kd():
    # Eq. (6): KD = KL(b_T, b_S) + (1 − p_t) KL(others), row by row.
    context = make_context()
    step = make_step("dkd", context, rows=1)
    label = int(step.labels[0])
    rest = 1 - oracle.softmax(step.teacher.logits.numpy()[0, ORDER], 4.0)[label]
    terms = build("dkd", context, target_weight=1.0, other_weight=float(rest))(step)
    kd = build("kd", context, weight=1.0)(step)["kd"]
    torch.testing.assert_close(terms["target"] + terms["others"], kd)


def test_dkd_warms_up():
    context = make_context()
    method = build("dkd", context, warmup=0.5)
    full = method(make_step("dkd", context, progress=0.5))
    half = method(make_step("dkd", context, progress=0.25))
    for key, factor in (("task", 1.0), ("target", 0.5), ("others", 0.5)):
        torch.testing.assert_close(half[key], factor * full[key])


@pytest.mark.parametrize("warmup", [-1.0, 1.5, float("nan")])
def test_dkd_refuses_a_warmup_that_is_no_share_of_training(warmup):
    with pytest.raises(
        PreceptorError, match=f"^warmup is {warmup}; expected a share of training from 0 to 1$"
    ):
        build("dkd", make_context(), warmup=warmup)


def test_the_probe_is_the_penalised_maximum_of_likelihood():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = rng.normal(size=(90, 4)) * [1, 10, 0.1, 2] + 3 + 2 * np.eye(3, 4)[labels]
    probe = fit_probe(torch.as_tensor(features), torch.as_tensor(labels), 3, penalty=0.05)
    scaled = (features - features.mean(0)) / features.std(0)
    # The objective is convex: its gradient vanishes at the maximum and nowhere else.
    excess = oracle.softmax(features @ probe.weight.double().numpy().T + probe.bias.double().numpy())
    excess = (excess - np.eye(3)[labels]) / 90
    weight = probe.weight.double().numpy() * features.std(0)
    np.testing.assert_allclose(excess.T @ scaled + 0.05 * weight, 0, atol=1e-5)
    np.testing.assert_allclose(excess.sum(axis=0), 0, atol=1e-5)
    assert np.abs(weight).max() > 0.1


def test_the_probe_chooses_its_penalty_on_rows_it_has_not_seen():
    rng = np.random.default_rng(0)
    labels = torch.as_tensor(np.arange(80) % 2)
    noise = torch.as_tensor(rng.normal(size=(80, 60)))
    assert fit_probe(noise, labels, 2).penalty == 1.0  # nothing to learn: the strongest
    clear = noise.clone()
    clear[:, 0] = 20.0 * labels
    assert fit_probe(clear[:, :2], labels, 2).penalty == 1e-4  # nothing but signal: the weakest


def test_the_probe_bears_constant_features_and_missing_classes():
    features = torch.ones(6, 3)
    probe = fit_probe(features, torch.tensor([0, 0, 0, 0, 2, 2]), 4)
    assert torch.isfinite(probe.weight).all()
    assert (features @ probe.weight.T + probe.bias).argmax(dim=1).tolist() == [0] * 6


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_probe_does_not_depend_on_the_scale_of_the_features(scale):
    labels = torch.arange(61) % 3
    features = torch.randn(61, 4, generator=torch.Generator().manual_seed(0)).double()
    features[:, :2] += labels[:, None]
    features *= torch.tensor([1, 1e-11, 1, 1e-11])
    plain, scaled = fit_probe(features, labels, 3), fit_probe(scale * features, labels, 3)
    assert scaled.penalty == plain.penalty
    torch.testing.assert_close(scale * scaled.weight, plain.weight)
    torch.testing.assert_close(scaled.bias, plain.bias)


@pytest.mark.parametrize("constant", [12345.678, 1e8 / 3])
def test_rounding_of_a_constant_feature_means_nothing_to_the_probe(constant):
    """Neither that of its mean nor that of its values in float32."""
    labels = torch.arange(61) % 3
    features = torch.randn(61, 3, generator=torch.Generator().manual_seed(0)).double()
    rounded = constant * (1 + 1e-8 * features[:, :1])
    alone = fit_probe(features, labels, 3)
    for column in (torch.full((61, 1), constant, dtype=torch.float64), rounded, rounded.float().double()):
        beside = fit_probe(torch.cat([features, column], dim=1), labels, 3)
        assert beside.weight[:, 3].tolist() == [0, 0, 0]
        torch.testing.assert_close(beside.weight[:, :3], alone.weight)
        torch.testing.assert_close(beside.bias, alone.bias)


def test_a_probe_on_very_many_rows_is_fitted_on_some_of_each_class(monkeypatch):
    torch.manual_seed(0)
    labels = torch.tensor([0, 1] * 20 + [2])  # the last class has a single row
    features = torch.randn(41, 4) + torch.randn(3, 4)[labels]
    everything = fit_probe(features, labels, 3, penalty=0.1)
    monkeypatch.setattr("preceptor.distill.losses.probe.LARGEST", 2 * 41)
    halved = fit_probe(features, labels, 3, penalty=0.1)
    rows = torch.tensor([row for row in range(40) if row % 4 < 2] + [40])
    monkeypatch.undo()
    expected = fit_probe(features[rows], labels[rows], 3, penalty=0.1)
    torch.testing.assert_close((halved.weight, halved.bias), (expected.weight, expected.bias), atol=0, rtol=0)
    assert not torch.equal(halved.weight, everything.weight)


def test_probe_kd_teaches_from_the_probe():
    context = make_context(same=False)
    step = make_step("probe-kd", context)
    generator = torch.Generator().manual_seed(0)
    probe = Probe(torch.randn(3, 5, generator=generator), torch.randn(3, generator=generator), 0.0)
    terms = build("probe-kd", context, probe=probe, weight=0.5, task_weight=2.0)(step)
    student = step.student.logits.numpy()
    guess = step.teacher.features.numpy() @ probe.weight.double().numpy().T + probe.bias.double().numpy()
    close(terms["probe"], 0.5 * oracle.kd(guess, student, 4.0))
    close(terms["task"], 2 * oracle.cross_entropy(student, step.targets.numpy()))


def test_probe_kd_fits_the_training_outputs():
    context = make_context(same=False)
    method = build("probe-kd", context, penalty=0.01)
    outputs = context.train_outputs
    expected = fit_probe(torch.as_tensor(outputs.features), torch.as_tensor(outputs.labels), 3, 0.01)
    torch.testing.assert_close(method.probe_weight, expected.weight.double())
    guess = outputs.features @ method.probe_weight.numpy().T + method.probe_bias.numpy()
    assert np.mean(guess.argmax(axis=1) == outputs.labels) > 0.5


@pytest.mark.parametrize("name", ["probe-kd", "sinkhorn+probe"])
def test_a_probe_without_training_outputs_is_refused(name):
    context = replace(make_context(), train_outputs=None)
    options = {"cost": "constant"} if name == "sinkhorn+probe" else {}
    with pytest.raises(
        PreceptorError, match="a probe is fitted on the teacher's outputs over the training set"
    ):
        build(name, context, **options)
