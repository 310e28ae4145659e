"""Losses on the last features against numpy: rkd, aml, refilled, wcord, seed, vkd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from preceptor import ot
from preceptor.core import PreceptorError
from preceptor.distill.losses.geometry import unit_rows
from preceptor.distill.losses.vkd import Rotation
from tests.distill.losses.cases import build, make_context, make_step
from tests.oracles import distill as oracle


def close(term, expected, rtol=1e-6):
    np.testing.assert_allclose(float(term.detach()), expected, rtol=rtol, atol=1e-9)


def setup(name, **options):
    context = make_context(same=False)
    step = make_step(name, context)
    return build(name, context, **options), step, step.student.features.numpy(), step.teacher.features.numpy()


def test_rkd():
    method, step, student, teacher = setup("rkd")
    distance, angle = oracle.rkd(teacher, student)
    terms = method(step)
    close(terms["distance"], 25 * distance)
    close(terms["angle"], 50 * angle)


def published_rkd(student, teacher):
    """Distance and angle loss as in the program that many compare with: means over all B² and B³ entries."""

    def lengths(points):
        squares = points.square().sum(1)
        roots = (squares[:, None] + squares[None, :] - 2 * points @ points.T).clamp(min=1e-12).sqrt()
        roots = roots * (1 - torch.eye(len(points), dtype=points.dtype))
        return roots / roots[roots > 0].mean()

    def cosines(points):
        units = torch.nn.functional.normalize(points[None] - points[:, None], dim=2)
        return torch.bmm(units, units.transpose(1, 2))

    smooth = torch.nn.functional.smooth_l1_loss
    return smooth(lengths(student), lengths(teacher)), smooth(cosines(student), cosines(teacher))


def test_rkd_is_the_published_program_but_for_equal_rows():
    generator = torch.Generator().manual_seed(4)
    method, step, *_ = setup("rkd")
    rows = len(step.labels)
    features = torch.randn(rows, 4, generator=generator, dtype=torch.float64).relu().requires_grad_()
    terms = method(replace(step, student=replace(step.student, features=features)))
    distance, angle = published_rkd(features, step.teacher.features)
    ours = torch.stack(
        [terms["distance"] * (rows - 1) / rows, terms["angle"] * (rows - 1) * (rows - 2) / rows**2]
    )
    theirs = torch.stack([25 * distance, 50 * angle])
    torch.testing.assert_close(ours, theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            *(torch.autograd.grad(value, features, retain_graph=True)[0] for value in (mine, wanted))
        )


def test_rkd_sees_neither_origin_nor_scale():
    method, step, _, _ = setup("rkd")
    far = replace(step, student=replace(step.student, features=1e3 + 7 * step.student.features))
    for key, value in method(step).items():
        torch.testing.assert_close(method(far)[key], value, rtol=1e-6, atol=1e-9)


def test_rkd_leaves_out_a_term_of_weight_zero():
    method, step, _, _ = setup("rkd", angle_weight=0.0)
    assert set(method(step)) == {"task", "distance"}


@pytest.mark.parametrize("include_self", [True, False])
def test_aml(include_self):
    method, step, student, teacher = setup("aml", include_self=include_self, margin=1.2)
    projected = (
        student @ method.projection.weight.detach().numpy().T + method.projection.bias.detach().numpy()
    )
    close(method(step)["metric"], oracle.aml(projected, teacher, step.labels.numpy(), 1.2, include_self))


def test_aml_regression_is_the_anchor_alone():
    method, step, student, teacher = setup("aml", loss="regression")
    projected = (
        student @ method.projection.weight.detach().numpy().T + method.projection.bias.detach().numpy()
    )
    pairs = zip(projected, teacher, strict=True)
    expected = np.mean([0.5 * np.sum((oracle.unit(s) - oracle.unit(t)) ** 2) for s, t in pairs])
    close(method(step)["metric"], expected)


@pytest.mark.parametrize("margin", [None, 0.4])
def test_refilled_embedding(margin):
    options = {"triplets": "all"} if margin is None else {"margin": margin}
    method, step, student, teacher = setup("refilled-embedding", **options)
    expected = oracle.refilled_embedding(teacher, student, step.labels.numpy(), 4.0, margin)
    assert expected > 0
    terms = method(step)
    close(terms["embedding"], 1000 * expected, rtol=1e-5)
    close(terms["task"], 0.0)


def test_refilled_embedding_mines_only_semi_hard_triplets():
    method, step, _, _ = setup("refilled-embedding", margin=0.1)
    other, _, _, _ = setup("refilled-embedding", triplets="all")
    assert float(method(step)["embedding"]) != pytest.approx(float(other(step)["embedding"]))


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 2, 2, 0, 0, 2]])
def test_refilled_classifier_looks_at_the_classes_of_the_batch(labels):
    method, step, _, teacher = setup("refilled-classifier", weight=2.0)
    context = make_context(same=False)
    outputs = context.train_outputs
    centers = np.stack([outputs.features[outputs.labels == c].mean(axis=0) for c in range(3)])
    step = replace(step, labels=torch.tensor(labels))
    expected = oracle.refilled_classifier(teacher, centers, step.student.logits.numpy(), labels, 2.0)
    close(method(step)["local"], 2 * expected, rtol=1e-5)


def embedded(method, step):
    with torch.no_grad():
        return (
            method.student_critic(step.student.features).numpy(),
            method.teacher_critic(step.teacher.features).numpy(),
        )


def test_wcord():
    method, step, _, _ = setup("wcord", width=7)
    method.eval()  # spectral normalisation keeps its vectors
    contrast, transport = oracle.wcord(*embedded(method, step), 0.1)
    terms = method(step)
    close(terms["global"], 0.8 * contrast)
    close(terms["local"], 0.05 * transport, rtol=1e-5)


def test_wcord_local_gradient_is_that_of_the_entropic_value():
    method, step, _, _ = setup("wcord", width=7, global_weight=0.0, local_weight=1.0)
    method.eval()
    features = step.student.features.requires_grad_()
    slope = torch.autograd.grad(method(step)["local"], features)[0]
    generator = torch.Generator().manual_seed(0)
    way = torch.randn(features.shape, generator=generator, dtype=torch.float64)

    def value(length):
        with torch.no_grad():
            student = unit_rows(method.student_critic(features + length * way))
            teacher = unit_rows(method.teacher_critic(step.teacher.features))
            mass = torch.full((1, 6), 1 / 6, dtype=torch.float64)
            return ot.sinkhorn(mass, mass, 1 - student @ teacher.T, 0.1, 1e-12, 50000).value[0]

    torch.testing.assert_close((slope * way).sum(), (value(1e-5) - value(-1e-5)) / 2e-5, rtol=1e-5, atol=1e-8)


def test_wcord_critics_are_1_lipschitz():
    method, step, _, _ = setup("wcord")
    for _ in range(30):
        method(step)
    for critic in (method.student_critic, method.teacher_critic):
        assert float(torch.linalg.matrix_norm(critic.weight.detach(), 2)) == pytest.approx(1.0, abs=1e-3)


def test_seed_against_its_queue():
    context = make_context(same=False)
    method = build("seed", context, queue_size=8)
    first, second = make_step("seed", context, seed=1), make_step("seed", context, seed=2)
    method(first)
    queue = [oracle.unit(row) for row in first.teacher.features.numpy()]
    with torch.no_grad():
        student = method.head(second.student.features).numpy()
    teacher = second.teacher.features.numpy()
    close(method(second)["similarity"], oracle.seed(student, teacher, queue, 0.2, 0.01))
    # The oldest make room: eight places, twelve rows seen.
    queue = (queue + [oracle.unit(row) for row in teacher])[-8:]
    third = make_step("seed", context, seed=3)
    with torch.no_grad():
        student = method.head(third.student.features).numpy()
    close(method(third)["similarity"], oracle.seed(student, third.teacher.features.numpy(), queue, 0.2, 0.01))


def test_seed_without_a_memory_says_nothing():
    method, step, _, _ = setup("seed")
    close(method(step)["similarity"], 0.0)


def test_seeds_queue_is_no_longer_than_the_training_set():
    method, _, _, _ = setup("seed")
    assert len(method.queue) == 24
    with pytest.raises(PreceptorError, match="queue_size 0 came; a queue needs at least one place"):
        setup("seed", queue_size=0)


def test_vkd():
    method, step, student, teacher = setup("vkd", weight=3.0)
    matrix = method.projection.matrix.detach().numpy()
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(4), atol=1e-6)
    close(method(step)["features"], 3 * oracle.vkd(student @ matrix.T, teacher))


def test_vkd_stays_orthogonal_while_it_learns():
    method, step, _, _ = setup("vkd")
    optimizer = torch.optim.SGD(method.parameters(), lr=1.0)
    before = method.projection.matrix.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        method(step)["features"].backward()
        optimizer.step()
    matrix = method.projection.matrix.detach()
    assert float((matrix - before).abs().max()) > 1e-2
    torch.testing.assert_close(matrix.T @ matrix, torch.eye(4, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("width", "target"), [(3, 7), (7, 3), (5, 5)])
def test_a_rotation_turns_and_begins_where_its_weight_is(width, target):
    rotation = Rotation(width, target).double()
    torch.testing.assert_close(
        rotation.matrix, rotation.weight, atol=1e-6, rtol=0
    )  # it begins as one, in float32
    with torch.no_grad():
        rotation.weight.add_(torch.randn(target, width, generator=torch.Generator().manual_seed(0)))
    matrix, narrow = rotation.matrix, min(width, target)
    gram = matrix.T @ matrix if target >= width else matrix @ matrix.T
    torch.testing.assert_close(gram, torch.eye(narrow, dtype=torch.float64))
    # The same whatever the weight's length, so that weight decay does not touch it.
    with torch.no_grad():
        rotation.weight.mul_(0.1)
    torch.testing.assert_close(rotation.matrix, matrix)
    torch.autograd.gradcheck(lambda weight: functional_matrix(rotation, weight), (rotation.weight,))


def functional_matrix(rotation, weight):
    return torch.func.functional_call(rotation, {"weight": weight}, (torch.eye(weight.shape[1]).double(),))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("aml", {"loss": "x"}, "loss 'x' is unknown; expected one of contrastive, regression"),
        ("refilled-embedding", {"triplets": "x"}, "triplets 'x' is unknown; expected one of semihard, all"),
    ],
)
def test_refused_options(name, options, text):
    with pytest.raises(PreceptorError, match=text):
        setup(name, **options)
