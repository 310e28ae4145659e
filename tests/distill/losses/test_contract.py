"""What every registered method has to do, whatever its formula."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from preceptor.core import ModelOutput, Outputs, PreceptorError
from preceptor.distill.losses import METHODS, Context, Step
from tests.distill.losses.cases import (
    OTHER_CLASSES,
    STUDENT_CLASSES,
    build,
    leaves,
    loss,
    make_context,
    make_step,
    rows_of,
    views,
    with_padding,
)

NAMES = sorted(METHODS)
SAME = [name for name in NAMES if "same-classes" in METHODS[name].needs]
TAUGHT = [name for name in NAMES if "teacher" in METHODS[name].needs]
MAPS = [name for name in NAMES if "maps" in METHODS[name].needs]
# The transport solver decides on the host when to stop; mgd solves its assignment there.
WAITING = {"sinkhorn", "sinkhorn+probe", "wcord", "mgd"}


@pytest.mark.parametrize("name", NAMES)
def test_declares_itself(name):
    method = METHODS[name]
    assert method.name == name
    assert method.reference
    assert method.needs <= {"teacher", "same-classes", "maps", "views", "special-teacher"}
    assert method.__doc__
    context = make_context()
    terms = build(name, context)(make_step(name, context))
    assert tuple(terms) == method.term_names
    assert all(value.ndim == 0 for value in terms.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused(name):
    with pytest.raises(PreceptorError, match=rf"method {name.replace('+', '.')} has no option \['wieght'\]"):
        METHODS[name](make_context(), wieght=3.0)


@pytest.mark.parametrize("name", NAMES)
def test_unequal_classes_work_or_are_refused(name):
    context = make_context(same=False)
    if name in SAME:
        with pytest.raises(PreceptorError) as refusal:
            METHODS[name](context)
        assert str(refusal.value) == (
            f"method {name} compares predictions class by class and needs a teacher with the student's "
            "classes; "
            "only the student has cat, dog, only the teacher has car, ship, tram: "
            "use a method without this need, such as sinkhorn or probe-kd"
        )
    else:
        assert torch.isfinite(loss(build(name, context), make_step(name, context)))


@pytest.mark.parametrize("name", TAUGHT)
def test_a_missing_teacher_is_refused(name):
    context = make_context(teacher=False)
    with pytest.raises(
        PreceptorError, match="needs a teacher and none was given; pass one or use method none"
    ):
        METHODS[name](context)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("side", ["student", "teacher"])
def test_missing_maps_are_refused(name, side):
    context = make_context()
    shape = getattr(context, f"{side}_shape")
    context = replace(context, **{f"{side}_shape": replace(shape, maps=())})
    with pytest.raises(
        PreceptorError, match=f"method {name} compares feature maps and the {side} gives none"
    ):
        METHODS[name](context)


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


def cast(step: Step, dtype: torch.dtype) -> Step:
    def output(out: ModelOutput) -> ModelOutput:
        return ModelOutput(tuple(m.to(dtype) for m in out.maps), out.features.to(dtype), out.logits.to(dtype))

    assert step.teacher is not None
    return replace(
        step, student=output(step.student), teacher=output(step.teacher), targets=step.targets.float()
    )


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


@pytest.mark.parametrize("name", NAMES)
def test_initial_state_follows_the_seed_and_leaves_the_global_one(name):
    torch.manual_seed(0)
    first = METHODS[name](make_context(seed=3)).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(0)
    torch.testing.assert_close(torch.rand(1), drawn, rtol=0, atol=0)
    torch.manual_seed(1)
    second = METHODS[name](make_context(seed=3)).state_dict()
    assert first.keys() == second.keys()
    for key, value in first.items():
        torch.testing.assert_close(second[key], value, rtol=0, atol=0)
    if any(p.ndim > 1 for p in METHODS[name](make_context()).parameters()):
        other = METHODS[name](make_context(seed=4)).state_dict()
        assert any(not torch.equal(other[key], value) for key, value in first.items())


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_checkpoint(name):
    context = make_context(same=name in SAME)
    method = METHODS[name](context)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1)), *method.parameters()], lr=0.01)
    for seed in (1, 2):
        optimizer.zero_grad()
        step = cast(make_step(name, context, seed=seed), torch.float32)
        leaves(step)
        torch.stack(list(method(step).values())).sum().backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    resumed = METHODS[name](replace(context, seed=9))
    resumed.load_state_dict(torch.load(file, weights_only=True))
    step = cast(make_step(name, context, seed=3), torch.float32)
    for _ in range(2):
        expected, terms = method(step), resumed(step)
        for key, value in expected.items():
            torch.testing.assert_close(terms[key], value, rtol=0, atol=0)


class _NoWaiting(TorchDispatchMode):
    """Fails where a value is fetched from the device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), (
            function
        )
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WAITING])
def test_the_loss_never_waits_for_the_device(name):
    context = make_context(same=name in SAME)
    method, step = METHODS[name](context), cast(make_step(name, context), torch.float32)
    with _NoWaiting():
        torch.stack(list(method(step).values())).sum()


class TinyNetwork(nn.Module):
    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        inputs = (3, *widths[:-1])
        self.blocks = nn.ModuleList(
            nn.Conv2d(i, o, 3, stride=1 + (n > 0), padding=1)
            for n, (i, o) in enumerate(zip(inputs, widths, strict=True))
        )
        self.classifier = nn.Linear(widths[-1], classes)

    def outputs(self, x: Tensor) -> ModelOutput:
        maps = []
        for block in self.blocks:
            x = torch.relu(block(x))
            maps.append(x)
        features = x.mean(dim=(2, 3))
        return ModelOutput(tuple(maps), features, self.classifier(features))


def toy(name: str) -> tuple[Context, TinyNetwork, TinyNetwork, Tensor, Tensor]:
    torch.manual_seed(0)
    classes = STUDENT_CLASSES[::-1] if name in SAME else OTHER_CLASSES
    student, teacher = TinyNetwork((4, 6), 3), TinyNetwork((8, 12), len(classes))
    labels = torch.arange(12) % 3
    images = torch.rand(12, 3, 8, 8) + labels[:, None, None, None] * torch.rand(3, 8, 8)
    with torch.no_grad():
        told, shape = teacher.outputs(images), student.outputs(images[:2])
    outputs = Outputs(told.features.double().numpy(), told.logits.double().numpy(), labels.numpy())
    weight = teacher.classifier.weight.detach()
    small = ModelOutput(tuple(m[:2] for m in told.maps), told.features[:2], told.logits[:2])
    context = Context(
        STUDENT_CLASSES, shape, classes, small, weight, None, weight.clone(), outputs, 12, 0, labels
    )
    return context, student, teacher, images, labels


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_network_learns_and_repeats_itself(name):
    histories = []
    for _ in range(2):
        context, student, teacher, images, labels = toy(name)
        method = METHODS[name](context, **({"triplets": "all"} if name == "refilled-embedding" else {}))
        # Hints are weighted by 100 and more: a rate that suits them all.
        optimizer = torch.optim.Adam([*student.parameters(), *method.parameters()], lr=3e-3)
        targets = torch.nn.functional.one_hot(labels, 3).float()
        history = []
        for _ in range(15):
            seen = method.expand(images)
            with torch.no_grad():
                told = teacher.outputs(seen)
            own = student.outputs(seen)
            terms = method(Step(seen, labels, targets, torch.ones(12), torch.arange(12), own, told, 0.5))
            total = torch.stack(list(terms.values())).sum()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            history.append(float(total.detach()))
        histories.append(history)
    assert histories[0] == histories[1]
    # From the third step: seed's memory is empty at the first, and no task at all.
    assert histories[0][-1] < histories[0][2]
