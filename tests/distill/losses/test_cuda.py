from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from preceptor.core import ModelOutput
from preceptor.distill.losses import METHODS, Step
from tests.distill.losses.cases import NAMES, SAME, WAITING, cast, make_context, make_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_gpu(step: Step) -> Step:
    def output(out: ModelOutput) -> ModelOutput:
        return ModelOutput(tuple(m.cuda() for m in out.maps), out.features.cuda(), out.logits.cuda())

    fields = ("images", "labels", "targets", "weights", "indices")
    moved = {name: getattr(step, name).cuda() for name in fields}
    return replace(step, student=output(step.student), teacher=output(step.teacher), **moved)


@pytest.mark.parametrize("name", NAMES)
def test_same_terms_as_on_the_cpu(name):
    context = make_context(same=name in SAME)
    method = METHODS[name](context)
    other = copy.deepcopy(method).cuda()
    for seed in (1, 2):
        step = cast(make_step(name, context, seed=seed), torch.float32)
        expected, terms = method(step), other(on_gpu(step))
        for key, value in expected.items():
            torch.testing.assert_close(terms[key].cpu(), value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WAITING])
def test_no_wait_for_the_device(name):
    context = make_context(same=name in SAME)
    method = METHODS[name](context).cuda()
    step = on_gpu(cast(make_step(name, context), torch.float32))
    leaves = [step.student.logits, step.student.features, *step.student.maps]
    for leaf in leaves:
        leaf.requires_grad_()
    for attempt in range(2):
        torch.cuda.set_sync_debug_mode(
            "error" if attempt else "default"
        )  # libraries may wait when first loaded
        try:
            torch.stack(list(method(step).values())).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
