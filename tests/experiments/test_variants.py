from __future__ import annotations

from dataclasses import replace

import torch
from experiments.variants import (
    GraphedMgd,
    GraphedWcord,
    MixedTerm,
    Standardised,
    StandardisedProbe,
    Trusted,
    conditional_cost,
    trust_in,
)

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import Context, Probe, Sinkhorn, Step
from preceptor.distill.losses.mgd import MatchingGuided
from preceptor.distill.losses.wcord import WassersteinContrastive


def outputs(rows, channels, features, classes, seed):
    chance = torch.Generator().manual_seed(seed)
    maps = tuple(torch.randn(rows, channels * 2**k, 4, 4, generator=chance) for k in range(2))
    return ModelOutput(
        maps, torch.randn(rows, features, generator=chance), torch.randn(rows, classes, generator=chance)
    )


def pieces(rows=32):
    student, teacher = outputs(rows, 3, 8, 5, 0), outputs(rows, 4, 12, 6, 1)
    labels = torch.arange(rows) % 5
    context = Context(
        tuple("abcde"), student, tuple("uvwxyz"), teacher, torch.randn(6, 12), torch.randn(6, 12), None, rows, 0,
    )  # fmt: skip
    targets = torch.nn.functional.one_hot(labels, 5).float()
    step = Step(
        torch.zeros(rows, 3, 8, 8),
        labels,
        targets,
        torch.ones(rows),
        torch.arange(rows),
        student,
        teacher,
        0.0,
    )
    return context, step


def test_fixed_iterations_give_the_transport_of_the_original():
    context, _ = pieces()
    chance = torch.Generator().manual_seed(2)
    points = [torch.nn.functional.normalize(torch.randn(256, 128, generator=chance), dim=1) for _ in range(2)]
    points[1][:128] = points[0][:128]  # half of the pairs match well, which is the hard case
    cost = 1 - points[0] @ points[1].T
    weights = torch.ones(256)
    plan = GraphedWcord(context).plan(cost, weights)
    assert float((plan.sum(1) - 1 / 256).abs().sum()) < 1e-3
    original = WassersteinContrastive(context, tolerance=1e-6).plan(cost, weights)
    torch.testing.assert_close(plan, original, atol=1e-6, rtol=1e-2)


def test_channels_are_matched_as_in_the_original_after_the_first_step():
    context, step = pieces()
    plain, ours = MatchingGuided(context), GraphedMgd(context)
    plain(step)
    ours(step)
    ours.between_epochs()
    for level in range(2):
        torch.testing.assert_close(getattr(ours, f"matches_{level}"), getattr(plain, f"matches_{level}"))
        torch.testing.assert_close(
            getattr(ours, f"cost_{level}"), torch.zeros_like(getattr(ours, f"cost_{level}"))
        )
    torch.testing.assert_close(ours(step)["matching"], plain(step)["matching"])


def test_the_conditional_cost_is_low_where_classes_meet():
    logits = torch.eye(3)[torch.tensor([0, 0, 1, 1, 2, 2])] * 20
    cost = conditional_cost(
        Outputs(torch.zeros(6, 2).numpy(), logits.numpy(), torch.tensor([1, 1, 0, 0, 2, 2]).numpy()), 3
    )
    assert cost.argmin(1).tolist() == [1, 0, 2]
    carried = torch.softmax(-cost / 0.1, dim=1)  # what the free transport sends a certain teacher to
    torch.testing.assert_close(carried.diagonal()[2], torch.tensor(2.1 / 2.3), atol=1e-4, rtol=1e-4)


def test_trust_is_in_what_the_teacher_says_of_the_label():
    guess = torch.tensor([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    torch.testing.assert_close(trust_in(guess, torch.tensor([0, 1, 2])), torch.tensor([1.0, 0.5, 1.0]))


def test_trusted_terms_are_the_plain_ones_row_by_row():
    context, step = pieces()
    matrix = torch.rand(6, 5, generator=torch.Generator().manual_seed(3))
    context = replace(context, train_outputs=Outputs(step.teacher.features.numpy(), step.teacher.logits.numpy(),
                                                     step.labels.numpy()))  # fmt: skip
    probe = Probe(torch.randn(5, 12, generator=torch.Generator().manual_seed(4)), torch.zeros(5), 0.0)
    options = {
        "cost": "shallow",
        "matrix": matrix,
        "weight": 2.0,
        "temperature": 6.0,
        "schedule": "linear-decay",
    }
    rest = {"probe": probe, "probe_weight": 3.0}
    method = Trusted(context, trust_temperature=1.0, **options, **rest)
    found = method(replace(step, progress=0.5))
    carried = step.teacher.logits.softmax(1) @ (-matrix / 0.1).softmax(1)
    rows = method.transport(step.teacher.logits, step.student.logits) * trust_in(carried, step.labels)
    torch.testing.assert_close(found["sinkhorn"], rows.mean())  # weight 2, half way
    plain = Trusted(context, trust=False, **options, **rest)(step)
    guess = (step.teacher.features @ probe.weight.T).softmax(1)
    alone = [Trusted(context, trust=False, **options, **rest)(only(step, row))["probe"] for row in range(32)]
    torch.testing.assert_close(torch.stack(alone).mean(), plain["probe"])
    wanted = 0.5 * (torch.stack(alone) * trust_in(guess, step.labels)).mean()
    torch.testing.assert_close(found["probe"], wanted)


def only(step, row):
    """The step with one image."""
    weights = torch.zeros_like(step.weights)
    weights[row] = 1
    return replace(step, weights=weights)


def seen(context):
    """The context with what the teacher says of the training images."""
    chance = torch.Generator().manual_seed(4)
    sides = (
        torch.randn(32, 12, generator=chance),
        torch.randn(32, 6, generator=chance),
        torch.arange(32) % 5,
    )
    return replace(context, train_outputs=Outputs(*(side.numpy() for side in sides)))


def scaled(step, teacher=1.0, student=1.0):
    """The same step with logits of another spread and level."""
    louder = [
        replace(out, logits=scale * out.logits + scale)
        for out, scale in ((step.teacher, teacher), (step.student, student))
    ]
    return replace(step, teacher=louder[0], student=louder[1])


def test_standardised_terms_do_not_see_how_far_logits_are_spread():
    context, step = pieces()
    for method in (
        Standardised(seen(context)),
        StandardisedProbe(seen(context), probe=Probe(torch.randn(5, 12), torch.zeros(5), 1.0)),
    ):
        whole, loud = (
            sum(v for k, v in method(s).items() if k != "task") for s in (step, scaled(step, 5.0, 0.2))
        )
        torch.testing.assert_close(loud, whole, rtol=1e-4, atol=1e-4)
    one_sided = Standardised(seen(context), sides="teacher", spread=3.0)
    torch.testing.assert_close(
        one_sided(scaled(step, 5.0))["sinkhorn"], one_sided(step)["sinkhorn"], rtol=1e-4, atol=1e-4
    )
    quiet = one_sided(scaled(step, student=0.2))["sinkhorn"]
    assert not torch.isclose(quiet, one_sided(step)["sinkhorn"], rtol=1e-3)


def test_the_mixed_term_adds_mixed_images_that_have_no_labels():
    context, step = pieces()
    method, plain = MixedTerm(seen(context)), Sinkhorn(seen(context))
    images = torch.rand(32, 3, 8, 8)
    both = method.expand(images)
    torch.testing.assert_close(both[:32], images)
    share = (both[32:] - images.roll(1, 0)) / (images - images.roll(1, 0))
    torch.testing.assert_close(share, share.flatten()[0].expand_as(share), rtol=1e-3, atol=1e-3)

    def twice(out):
        return ModelOutput((), out.features.repeat(2, 1), torch.cat([out.logits, out.logits.flip(0)]))

    found = method(replace(step, student=twice(step.student), teacher=twice(step.teacher)))
    alone = plain(step)
    torch.testing.assert_close(found["task"], alone["task"])
    torch.testing.assert_close(found["sinkhorn"], alone["sinkhorn"], rtol=1e-4, atol=1e-4)
