"""What every registered method has to compute, whatever its formula: gradients, padding, parts, hard inputs."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import METHODS, Step
from tests.distill.losses.cases import (
    NAMES,
    SAME,
    TAUGHT,
    WAITING,
    build,
    cast,
    leaves,
    loss,
    make_context,
    make_step,
    rows_of,
    views,
    with_padding,
)


def directions(step: Step) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = [step.student.logits, step.student.features, *step.student.maps]
    return [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in inputs]


def moved(step: Step, ways: list[Tensor], length: float) -> Step:
    logits, features, *maps = ways
    student = ModelOutput(
        tuple(m + length * way for m, way in zip(step.student.maps, maps, strict=True)),
        step.student.features + length * features,
        step.student.logits + length * logits,
    )
    return replace(step, student=student)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_by_finite_differences(name):
    context = make_context(same=name in SAME)
    # wcord's transport cost has the gradient of the entropic value: test_features looks at it apart.
    method = build(name, context, **({"local_weight": 0.0} if name == "wcord" else {}))
    method(make_step(name, context, seed=1))  # fills memories
    step = make_step(name, context)
    inputs = leaves(step)
    slopes = torch.autograd.grad(loss(method, step), inputs, allow_unused=True)
    ways = directions(step)
    predicted = sum((g * w).sum() for g, w in zip(slopes, ways, strict=True) if g is not None)
    with torch.no_grad():
        high, low = loss(method, moved(step, ways, 1e-5)), loss(method, moved(step, ways, -1e-5))
    torch.testing.assert_close(predicted, (high - low) / 2e-5, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_the_method_is_trained(name):
    context = make_context(same=name in SAME)
    method = build(name, context, **({"triplets": "all"} if name == "refilled-embedding" else {}))
    method(make_step(name, context, seed=1))
    step = make_step(name, context)
    leaves(step)
    torch.stack(list(method(step).values())).sum().backward()
    for key, parameter in method.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_say(name):
    context = make_context(same=name in SAME)
    # A margin that every pair of unit vectors is inside of, so that each negative counts.
    method = build(name, context, **({"margin": 2.1} if name == "aml" else {}))
    other = copy.deepcopy(method)
    for seed in (1, 2):  # memories have to agree too
        plain = make_step(name, context, seed=seed)
        plain = replace(plain, labels=plain.labels % 2)  # padding has the third label: nobody else may see it
        padded = with_padding(name, plain)
        inputs = leaves(padded)
        expected, terms = method(plain), other(padded)
        for key, value in expected.items():
            torch.testing.assert_close(
                terms[key], value, rtol=1e-8, atol=1e-10, msg=lambda m, key=key: f"{key}: {m}"
            )
        slopes = torch.autograd.grad(torch.stack(list(terms.values())).sum(), inputs, allow_unused=True)
        for slope in slopes:
            for part in [] if slope is None else slope.chunk(views(name)):
                torch.testing.assert_close(part[-2:], torch.zeros_like(part[-2:]), rtol=0, atol=1e-12)
    for key, value in method.state_dict().items():
        torch.testing.assert_close(other.state_dict()[key], value, msg=lambda m, key=key: f"{key}: {m}")


# Their terms are means over rows, but statistics of the batch go into them.
SUMMING = {"refilled-classifier", "mgd", "afd", "fitnet"}


def part_of(name: str, step: Step, rows: Tensor) -> Step:
    """Some rows of a step, in all of its views."""
    seen = torch.cat([rows + view * len(step.labels) for view in range(views(name))])
    columns = {key: getattr(step, key)[rows] for key in ("labels", "targets", "weights", "indices")}
    teacher = None if step.teacher is None else rows_of(step.teacher, seen)
    return replace(
        step, images=step.images[seen], student=rows_of(step.student, seen), teacher=teacher, **columns
    )


@pytest.mark.parametrize("name", NAMES)
def test_says_whether_a_batch_is_more_than_its_rows(name):
    context = make_context(same=name in SAME)
    options = {"aml": {"margin": 2.1}, "refilled-embedding": {"triplets": "all"}}.get(name, {})
    whole = build(name, context, **options)
    halves = [copy.deepcopy(whole) for _ in range(2)]
    same = True
    for seed in (1, 2):  # memories show at the second step
        step = make_step(name, context, rows=4, seed=seed)
        expected = whole(step)
        parts = [
            half(part_of(name, step, rows))
            for half, rows in zip(halves, torch.arange(4).chunk(2), strict=True)
        ]
        for key, value in expected.items():
            mean = (parts[0][key] + parts[1][key]) / 2
            same = same and bool((mean - value).abs() <= 1e-7 * (1 + value.abs()))
    assert same == (not METHODS[name].relational and name not in SUMMING)


def scaled(step: Step, factor: float) -> Step:
    def output(out: ModelOutput) -> ModelOutput:
        maps = tuple(factor * m for m in out.maps)
        return ModelOutput(maps, factor * out.features, factor * out.logits)

    assert step.teacher is not None
    return replace(step, student=output(step.student), teacher=output(step.teacher))


def constant_rows(step: Step) -> Step:
    def output(out: ModelOutput) -> ModelOutput:
        maps = tuple(m[:1].expand_as(m) for m in out.maps)
        return ModelOutput(
            maps, out.features[:1].expand_as(out.features), out.logits[:1].expand_as(out.logits)
        )

    assert step.teacher is not None
    return replace(step, student=output(step.student), teacher=output(step.teacher))


HARD = {
    "one row": lambda step: step,
    "zeros": lambda step: scaled(step, 0.0),
    "one-hot predictions": lambda step: scaled(step, 1e4),
    "identical rows": constant_rows,
    "only padding": lambda step: replace(step, weights=torch.zeros_like(step.weights)),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_hard_inputs_stay_finite(name, case, dtype):
    context = make_context(same=name in SAME)
    options = {"max_iterations": 1000, "tolerance": 1e-3} if name in WAITING - {"mgd"} else {}
    method = METHODS[name](context, **options)
    step = HARD[case](make_step(name, context, rows=1 if case == "one row" else 6))
    step = cast(step, dtype)
    inputs = [step.student.logits, step.student.features, *step.student.maps]
    inputs = [x.detach().requires_grad_() for x in inputs]
    step = replace(step, student=ModelOutput(tuple(inputs[2:]), inputs[1], inputs[0]))
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            terms = method(step)
        for key, value in terms.items():
            assert value.dtype == torch.float32, key
            assert torch.isfinite(value), key
            if case == "only padding":
                assert float(value.detach()) == 0, key
        slopes = torch.autograd.grad(torch.stack(list(terms.values())).sum(), inputs, allow_unused=True)
        assert all(torch.isfinite(slope).all() for slope in slopes if slope is not None)


@pytest.mark.parametrize("name", NAMES)
def test_a_student_that_diverged_shows_as_nan(name):
    context = make_context(same=name in SAME)
    step = make_step(name, context)
    for values in (step.student.logits, step.student.features, *step.student.maps):
        values[1] = torch.nan
    terms = build(name, context)(step)
    assert torch.isnan(terms["task"])
    assert any(torch.isnan(value) for key, value in terms.items() if key != "task") == (name != "none")


@pytest.mark.parametrize("name", NAMES)
def test_autocast_changes_nothing_but_the_inputs(name):
    context = make_context(same=name in SAME)
    method = METHODS[name](context)
    step = cast(make_step(name, context), torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = copy.deepcopy(method)(step)
    high = copy.deepcopy(method)(cast(step, torch.float32))
    for key, value in high.items():
        torch.testing.assert_close(low[key], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", TAUGHT)
def test_the_order_of_the_teachers_classes_does_not_matter(name):
    context = make_context(same=name in SAME)
    step = make_step(name, context)
    order = torch.randperm(len(context.teacher_classes), generator=torch.Generator().manual_seed(1))
    if torch.equal(order, torch.arange(len(order))):
        order = order.flip(0)
    outputs = context.train_outputs
    turned = replace(
        context,
        teacher_classes=tuple(context.teacher_classes[i] for i in order),
        teacher_classifier=context.teacher_classifier[order],
        teacher_centers=context.teacher_centers[order],
        train_outputs=Outputs(outputs.features, outputs.logits[:, order.numpy()], outputs.labels),
    )
    turned_step = replace(step, teacher=replace(step.teacher, logits=step.teacher.logits[:, order]))
    torch.testing.assert_close(
        loss(build(name, turned), turned_step), loss(build(name, context), step), rtol=1e-7, atol=1e-9
    )
