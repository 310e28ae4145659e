"""Losses on feature maps and views against numpy: fitnet, vid, mgd, afd, sftn-teacher, sskd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.distill.losses.layers import RowBatchNorm
from preceptor.distill.losses.mgd import absolute_max, assign_channels, partial_squares
from preceptor.distill.losses.sskd import reliable
from tests.distill.losses.cases import build, make_context, make_step
from tests.oracles import distill as oracle


def close(term, expected, rtol=1e-6):
    np.testing.assert_allclose(float(term.detach()), expected, rtol=rtol, atol=1e-9)


def setup(name, **options):
    context = make_context(same=name == "sskd")
    step = make_step(name, context)
    student = [maps.numpy() for maps in step.student.maps]
    teacher = [maps.numpy() for maps in step.teacher.maps]
    return build(name, context, **options), step, student, teacher


def array(parameter):
    return parameter.detach().numpy()


@pytest.mark.parametrize(("level", "own", "theirs"), [(None, 1, 2), (0, 0, 1), (1, 1, 2)])
def test_fitnet_pairs_levels_from_the_deepest(level, own, theirs):
    method, step, student, teacher = setup("fitnet", level=level)
    close(
        method(step)["hint"],
        100 * oracle.fitnet(student[own], teacher[theirs], array(method.regressor.weight)),
    )


def test_fitnet_averages_maps_to_the_smaller_size():
    context = make_context()
    step = make_step("fitnet", context)
    large = replace(step.student, maps=(step.student.maps[0], step.student.maps[1].repeat(1, 1, 4, 4)))
    step = replace(step, student=large)
    context = replace(context, student_shape=replace(large, maps=tuple(m[:2] for m in large.maps)))
    method = build("fitnet", context, level=1)
    weight = array(method.regressor.weight)
    expected = oracle.fitnet(large.maps[1].numpy(), step.teacher.maps[2].numpy(), weight)
    close(method(step)["hint"], 100 * expected)


def test_fitnet_refuses_a_level_that_is_not_there():
    with pytest.raises(PreceptorError, match="level 2 is out of range; the networks share 2 levels of maps"):
        setup("fitnet", level=2)


def test_vid():
    method, step, student, teacher = setup("vid")
    expected = 0.0
    for regressor, own, theirs in zip(method.regressors, (0, 1), (1, 2), strict=True):
        weights = [array(layer.weight) for layer in regressor.mean if isinstance(layer, nn.Conv2d)]
        raw = array(regressor.raw_variance)
        np.testing.assert_allclose(np.log1p(np.exp(raw)) + 1e-5, 5.0, rtol=1e-5)
        expected += oracle.vid(student[own], teacher[theirs], weights, raw, 1e-5)
    close(method(step)["information"], expected)


def test_row_batch_norm_is_batch_norm():
    values = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norm = RowBatchNorm(3).double()
    expected = oracle.batch_norm(values[:4].numpy())
    got = norm(values, torch.tensor([1.0, 1, 1, 1, 0]))[:4]
    np.testing.assert_allclose(array(got), expected, rtol=1e-9)


@pytest.mark.parametrize(("student", "teacher"), [(2, 4), (3, 5), (2, 6), (3, 3)])
def test_channels_are_matched_at_the_least_cost(student, teacher):
    cost = np.random.default_rng(student * teacher).random((student, teacher))
    matches = assign_channels(torch.as_tensor(cost)).numpy()
    groups = teacher // student
    assert matches.shape == (groups, student)
    assert len(set(matches.ravel())) == groups * student

    def total(columns):
        return sum(cost[place % student, column] for place, column in enumerate(columns))

    assert total(matches.ravel()) == pytest.approx(total(oracle.best_matching(cost)))


def test_a_student_with_more_channels_shares_the_teachers():
    matches = assign_channels(torch.rand(5, 2, generator=torch.Generator().manual_seed(0)))
    assert matches.shape == (1, 5)
    assert np.bincount(matches.numpy().ravel(), minlength=2).max() == 3


def test_absolute_max_keeps_the_sign():
    teacher = torch.tensor([1.0, -3.0, 2.0, 0.5]).reshape(1, 4, 1, 1)
    reduced = absolute_max(teacher, torch.tensor([[0, 3], [1, 2]]))
    assert reduced.flatten().tolist() == [-3.0, 2.0]


def test_partial_squares_forgive_the_student_below_zero():
    student = torch.tensor([-2.0, -0.5, -2.0, 1.0])
    teacher = torch.tensor([-1.0, -1.0, 1.0, -1.0])
    assert partial_squares(student, teacher).tolist() == [0.0, 0.25, 9.0, 4.0]


def test_mgd():
    method, step, student, teacher = setup("mgd")
    term = method(step)["matching"]
    expected = 0.0
    for level, (own, theirs) in enumerate([(0, 1), (1, 2)]):
        s, t = student[own], teacher[theirs]
        size = min(s.shape[2], t.shape[2])
        s, t = (np.stack([oracle.pooled(row, size) for row in side]) for side in (s, t))
        cost = oracle.channel_cost(s, t)
        matches = getattr(method, f"matches_{level}").numpy()
        best = np.reshape(oracle.best_matching(cost), matches.shape)
        np.testing.assert_array_equal(np.sort(matches, axis=0), np.sort(best, axis=0))
        expected += oracle.mgd_level(s, t, matches) / 2 ** (1 - level)
    close(term, 1e-3 * expected)


def test_mgd_matches_anew_once_an_epoch():
    context = make_context(same=False)
    method = build("mgd", context)  # 24 samples, 6 a step: an epoch has 4 steps
    seen = []
    for seed in range(6):
        method(make_step("mgd", context, seed=seed))
        seen.append(method.matches_1.clone())
    for matches in seen[1:4]:
        torch.testing.assert_close(matches, seen[0], rtol=0, atol=0)
    assert not torch.equal(seen[4], seen[3])
    torch.testing.assert_close(seen[5], seen[4], rtol=0, atol=0)
    # The second matching is that of the costs of steps 1 to 4 together.
    steps = [make_step("mgd", context, seed=seed) for seed in range(1, 5)]
    cost = sum(oracle.channel_cost(s.student.maps[1].numpy(), s.teacher.maps[2].numpy()) for s in steps)
    best = assign_channels(torch.as_tensor(cost)).numpy()
    np.testing.assert_array_equal(np.sort(seen[4].numpy(), axis=0), np.sort(best, axis=0))


def test_mgd_refuses_no_steps():
    with pytest.raises(PreceptorError, match="update_every 0 came; expected a number of steps of at least 1"):
        setup("mgd", update_every=0)


def test_afd():
    method, step, student, teacher = setup("afd", width=7)

    def embedded(block, values):
        return oracle.batch_norm(values @ array(block.linear.weight).T + array(block.linear.bias))

    keys = [
        np.maximum(embedded(block, m.mean((2, 3))), 0) for block, m in zip(method.keys, student, strict=True)
    ]
    queries = [embedded(block, m.mean((2, 3))) for block, m in zip(method.queries, teacher, strict=True)]
    turned = embedded(
        method.bilinear, np.concatenate(keys)
    )  # rows: level by level; columns: teacher by teacher
    logits = np.zeros((6, 3, 2))
    for row, t, s in np.ndindex(*logits.shape):
        key = turned[6 * s + row, 7 * t : 7 * t + 7]
        places = array(method.teacher_places)[t] @ array(method.student_places)[s]
        logits[row, t, s] = (key @ queries[t][row] + places) / np.sqrt(7)
    attention = oracle.softmax(logits)
    np.testing.assert_allclose(
        array(method.attention(list(step.student.maps), list(step.teacher.maps), step.weights)),
        attention,
        rtol=1e-6,
    )
    close(method(step)["attention"], 200 * oracle.afd(student, teacher, attention))


class _Pooled(nn.Module):
    """A branch whose logits are plain means of the first three channels."""

    def forward(self, maps):
        return maps.mean(dim=(2, 3))[:, :3]


def test_sftn_teacher_with_given_branches():
    method, step, student, _ = setup("sftn-teacher", branches=[_Pooled(), _Pooled()])
    targets, logits = step.targets.numpy(), step.student.logits.numpy()
    guesses = [maps.mean(axis=(2, 3))[:, :3] for maps in student]
    terms = method(step)
    close(terms["task"], oracle.cross_entropy(logits, targets))
    close(terms["branch_kd"], 3 * sum(oracle.kd(logits, guess, 1.0) for guess in guesses))
    close(terms["branch_task"], sum(oracle.cross_entropy(guess, targets) for guess in guesses))


def test_sftn_teachers_branches_have_the_students_shape():
    context = make_context()
    method = build("sftn-teacher", context, student_shape=context.teacher_shape)
    convolutions = [m for m in method.branches[0].modules() if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [6, 5, 8]
    assert [c.stride for c in convolutions] == [(1, 1), (2, 2), (2, 2)]


def test_sftn_teacher_refusals():
    with pytest.raises(PreceptorError, match="3 branches came for 2 feature maps; give at most one each"):
        setup("sftn-teacher", branches=[_Pooled()] * 3)
    with pytest.raises(PreceptorError, match="method sftn-teacher branches off feature maps"):
        build("sftn-teacher", make_context(maps=False))


def test_sskd():
    method, step, _, _ = setup("sskd")
    with torch.no_grad():
        student = method.student_head(step.student.features).numpy()
        teacher = method.teacher_head(step.teacher.features).numpy()
    own, theirs = step.student.logits.numpy(), step.teacher.logits.numpy()[:, [1, 2, 0]]
    terms = method(step)
    close(terms["task"], 0.1 * oracle.cross_entropy(own[:6], step.targets.numpy()))
    close(terms["kd"], 0.9 * oracle.kd(theirs[:6], own[:6], 4.0))
    close(terms["rotated_kd"], 2.7 * oracle.kd(theirs[6:], own[6:], 4.0))
    close(terms["similarity"], 10 * oracle.sskd_similarity(student, teacher, 0.5, 0.75), rtol=1e-5)
    cosines = np.array([[oracle.unit(v) @ oracle.unit(u) for u in teacher[:6]] for v in teacher[6:]])
    expected = np.mean([-np.log(oracle.softmax(row)[r % 6]) for r, row in enumerate(cosines)])
    close(terms["teacher_head"], expected)


def test_sskd_waits_for_its_head_or_takes_a_ready_one():
    method, step, _, _ = setup("sskd")
    early = replace(step, progress=0.05)
    close(method(early)["similarity"], 0.0)
    ready = build("sskd", make_context(), teacher_head=method.teacher_head.state_dict())
    terms = ready(early)
    torch.testing.assert_close(terms["similarity"], method(step)["similarity"])
    assert "teacher_head" not in terms
    assert not any(p.requires_grad for p in ready.teacher_head.parameters())


def test_sskd_keeps_the_reliable_views():
    scores = torch.zeros(9, 3)  # three images, three rotations each
    own = torch.arange(9) % 3
    scores[torch.arange(9), own] = 1.0
    scores[4, 0] = 2.0  # second best
    scores[5, 0] = scores[5, 1] = 2.0  # third best
    counts = torch.ones(9)
    assert reliable(scores, counts, 0.5).tolist() == [1, 1, 1, 1, 1, 0, 1, 1, 1]
    assert reliable(scores, counts, 0.0).tolist() == [1, 1, 1, 1, 0, 0, 1, 1, 1]
    assert reliable(scores, counts, 1.0).tolist() == [1] * 9


def test_sskd_rotates():
    method, _, _, _ = setup("sskd")
    images = torch.rand(2, 3, 4, 4)
    views = method.expand(images)
    torch.testing.assert_close(views[:2], images)
    for turns in (1, 2, 3):
        expected = np.rot90(images.numpy(), turns, axes=(2, 3))
        np.testing.assert_array_equal(views[2 * turns : 2 * turns + 2].numpy(), expected)
    with pytest.raises(PreceptorError, match=r"needs square ones; \(3, 4, 5\) came"):
        method.expand(torch.rand(2, 3, 4, 5))
    with pytest.raises(PreceptorError, match="needs square ones"):
        method.expand(torch.rand(2, 7))


def test_sskd_takes_labels_repeated_or_not():
    method, step, _, _ = setup("sskd")
    repeated = replace(
        step,
        labels=step.labels.repeat(4),
        targets=step.targets.repeat(4, 1),
        weights=step.weights.repeat(4),
        indices=step.indices.repeat(4),
    )
    for key, value in method(step).items():
        torch.testing.assert_close(method(repeated)[key], value)


@pytest.mark.parametrize("options", [{"variance": 0.0}, {"variance": 1e-6}, {"floor": -1.0}, {"floor": 6.0}])
def test_vid_refuses_variances_that_cannot_be(options):
    with pytest.raises(PreceptorError, match=r"expected a floor above 0 and a variance above the floor$"):
        setup("vid", **options)


@pytest.mark.parametrize("variance", [1e-4, 5.0, 1000.0])
def test_vid_starts_from_its_variance(variance):
    method = setup("vid", variance=variance)[0]
    raw = method.regressors[0].raw_variance
    torch.testing.assert_close(nn.functional.softplus(raw) + 1e-5, torch.full_like(raw, variance))
