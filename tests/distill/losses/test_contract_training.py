"""What every registered method has to do in a training, whatever its formula: seeds, checkpoints, learning."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from preceptor.core import ModelOutput, Outputs
from preceptor.distill.losses import METHODS, Context, Step
from tests.distill.losses.cases import (
    NAMES,
    OTHER_CLASSES,
    SAME,
    STUDENT_CLASSES,
    WAITING,
    cast,
    leaves,
    make_context,
    make_step,
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
    context = Context(STUDENT_CLASSES, shape, classes, small, weight, weight.clone(), outputs, 12, 0)
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
