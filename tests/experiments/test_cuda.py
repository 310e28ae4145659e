from __future__ import annotations

import pytest
import torch
from experiments.packed import Pack
from experiments.pupils import Student

from experiments import run, sources
from preceptor.distill.losses import METHODS, Method
from preceptor.distill.losses.method import task_loss
from preceptor.models import build
from tests.experiments.test_packed import scene, weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Asking(Method):
    name = "asking"
    reference = "waits for a number"
    needs = frozenset()

    def terms(self, step):
        loss = task_loss(step)
        return {"task": loss * (2.0 if loss.item() > 1e9 else 1.0)}


def student(method=METHODS["none"]):
    network = build("wrn-10-1", 5, (3, 16, 16), seed=1).cuda().to(memory_format=torch.channels_last)
    return Student(network, method)


def test_a_recorded_pack_trains_as_one_that_is_not():
    source = sources.toy("cifar100", "cuda")
    pair = [student(), student()]
    for one, graphed in zip(pair, (True, False), strict=True):
        Pack([one], scene(source), graphed).train()
    torch.testing.assert_close(weights(pair[0]), weights(pair[1]), atol=2e-2, rtol=2e-2)


def test_a_method_that_waits_for_the_host_is_found_and_leaves_no_trace():
    source = sources.toy("cifar100", "cuda")
    students = [student(), student(Asking)]
    before = weights(students[0]).clone()
    pack = Pack(students, scene(source))
    assert pack.waits_for_host() == [1]
    torch.testing.assert_close(weights(students[0]), before, atol=0, rtol=0)


def test_no_method_of_fig_5_waits_for_the_host(tmp_path, capsys):
    told = ["--scale", "smoke", "--no-compile", "--part", "train", "--only", "data=cifar100"]
    assert run.main(["fig05", *told, "--work", str(tmp_path / "work"), "--results", str(tmp_path)]) == 0
    assert "not for a graph" not in capsys.readouterr().out
