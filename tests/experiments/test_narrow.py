"""Narrow convolutions: their kernels in Triton's interpreter on any machine, and on a GPU where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from experiments.merged import Merged
from torch import nn

from preceptor.models import build
from tests.recorded import recorded

pytest.importorskip("triton")

from experiments.narrow import Narrow, narrow_conv, takes

ROOT = Path(__file__).parents[2]
PAIR = {"pack": 2, "pixels": 32, "warps": 4}
CASES = {
    "16 to 16": {},
    "one group": {"groups": 1},
    "groups that fill no pack": {"groups": 5, "forms": {"GATHER": {**PAIR, "pack": 4}, "WEIGHT": PAIR}},
    "strided": {"after": 32, "stride": 2, "size": (6, 9)},
    "strided, groups in a pack": {"after": 32, "stride": 2, "groups": 3, "forms": {"GATHER": PAIR, "WEIGHT": PAIR}},
    "shortcut": {"after": 32, "kernel": 1, "stride": 2},
    "shortcut without stride": {"after": 32, "kernel": 1},
    "32 to 32": {"before": 32, "after": 32},
    "32 to 64": {"before": 32, "after": 64, "stride": 2},
    "64 to 64": {"before": 64, "after": 64, "groups": 1},
    "64 to 64, one line each": {
        "before": 64, "after": 64, "groups": 1, "forms": {"WEIGHT": {"pack": 1, "pixels": 32, "warps": 4, "lines": 1}}
    },
    "128 to 128": {"before": 128, "after": 128, "groups": 1, "size": (3, 3)},
    "fewer channels out": {"before": 32, "after": 16},
    "several chunks": {"batch": 3, "size": (17, 15), "groups": 1},
    "one pixel": {"size": (1, 1)},
    "no padding": {"padding": 0},
    "half": {"dtype": torch.float16},
    "half, strided": {"dtype": torch.float16, "after": 32, "stride": 2},
    "not channels-last": {"memory_format": torch.contiguous_format},
}  # fmt: skip


def problem(
    before=16, after=16, kernel=3, stride=1, size=(5, 7), batch=3, groups=3, padding=None, dtype=torch.float32,
    forms=None, memory_format=torch.channels_last,
):  # fmt: skip
    chance = torch.Generator().manual_seed(before + after + kernel)
    padding = kernel // 2 if padding is None else padding
    inputs = torch.randn(batch, groups * before, *size, generator=chance).to(dtype)
    weight = torch.randn(groups * after, before, kernel, kernel, generator=chance) / (kernel * before**0.5)
    output = nn.functional.conv2d(inputs.float(), weight, None, stride, padding, 1, groups)
    grad = torch.randn(output.shape, generator=chance).to(dtype)
    return {"inputs": inputs.to(memory_format=memory_format), "weight": weight, "grad": grad, "groups": groups,
            "stride": stride, "padding": padding, "forms": forms or {}}  # fmt: skip


def exact(given):
    """In float64, with weights rounded to the type of the inputs."""
    inputs = given["inputs"].double().requires_grad_()
    weight = given["weight"].to(given["inputs"].dtype).double().requires_grad_()
    output = nn.functional.conv2d(inputs, weight, None, given["stride"], given["padding"], 1, given["groups"])
    output.backward(given["grad"].double())
    return {"output": output.detach(), "inputs": inputs.grad, "weight": weight.grad}


def check(given, found):
    dtype = given["inputs"].dtype
    rounding = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    for name, wanted in exact(given).items():
        got = found[name]
        assert got.dtype == (given["weight"].dtype if name == "weight" else dtype)
        tolerance = (
            2e-5 if name == "weight" else rounding
        )  # sums of products of rounded numbers, kept in float32
        torch.testing.assert_close(
            got.cpu().double(), wanted.cpu(), atol=tolerance * float(wanted.abs().max()), rtol=tolerance
        )
    assert found["output"].is_contiguous(memory_format=torch.channels_last)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    given = {
        "cases": {name: problem(**options) for name, options in CASES.items()},
        "merged": {
            "arch": "wrn-10-1",
            "images": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
        },
        "autocast": problem(after=32, stride=2, groups=2),
    }
    place = tmp_path_factory.mktemp("narrow")
    torch.save(given, place / "given.pt")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.experiments.narrow_cases", place],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return given, torch.load(place / "found.pt", weights_only=True)


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_convolution_in_groups(answers, name):
    given, found = answers
    check(given["cases"][name], found["cases"][name])


def test_merged_networks_use_it_and_say_the_same(answers):
    given, found = answers[0]["merged"], answers[1]["merged"]
    plain = Merged([build(given["arch"], 5, (3, 8, 8), seed=seed) for seed in (0, 1)], given["images"])
    out = plain.train().outputs(given["images"])
    (out.logits.square().sum() + out.maps[1].square().sum()).backward()
    body = build(given["arch"], 5, (3, 8, 8)).named_modules()
    uneven = {f"body.{name}" for name, module in body if isinstance(module, nn.Conv2d) and name != "conv"
              and (module.stride != (1, 1) or module.in_channels != module.out_channels)}  # fmt: skip
    assert set(found["narrow"]) == uneven, "those that cuDNN has no kernel for"
    torch.testing.assert_close(found["logits"], out.logits.detach(), atol=1e-4, rtol=1e-4)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(found["grads"][name], parameter.grad, atol=1e-3, rtol=1e-3)
    for seed, written in enumerate(found["written"]):
        for name, value in build(given["arch"], 5, (3, 8, 8), seed=seed).named_parameters():
            torch.testing.assert_close(written[name], value.detach() + 1, atol=0, rtol=0)


def test_autocast_chooses_the_type_and_spares_the_weights(answers):
    given, found = answers[0]["autocast"], answers[1]["autocast"]
    half = {**given, "inputs": given["inputs"].half()}
    half["grad"] = 2 * found["output"].double()
    wanted = exact(half)
    assert found["output"].dtype == torch.float16
    assert found["weight"].dtype == torch.float32
    torch.testing.assert_close(found["output"].double(), wanted["output"], atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(
        found["weight"].double(), wanted["weight"], atol=2e-3 * float(wanted["weight"].abs().max()), rtol=2e-3
    )


def test_only_gradients_that_are_asked_for_are_computed(answers):
    assert answers[1]["spared"]


def test_the_compiler_is_told_of_channels_last():
    images = torch.empty(4, 48, 9, 9, device="meta", dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.empty(96, 16, 3, 3, device="meta", requires_grad=True)
    output = narrow_conv(images, weight, stride=2, padding=1)
    assert output.shape == (4, 96, 5, 5)
    assert output.dtype == torch.bfloat16
    assert output.is_contiguous(memory_format=torch.channels_last)
    output.sum().backward()
    assert images.grad.is_contiguous(memory_format=torch.channels_last)
    assert weight.grad.dtype == torch.float32
    assert weight.grad.is_contiguous()


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, True),
        ({"stride": 2}, True),
        ({"kernel_size": 1, "padding": 0}, True),
        ({"bias": True}, False),
        ({"groups": 2}, False),
        ({"dilation": 2}, False),
        ({"kernel_size": 5}, False),
        ({"kernel_size": (1, 3)}, False),
        ({"stride": (1, 2)}, False),
        ({"padding": "same"}, False),
        ({"padding_mode": "reflect"}, False),
        ({"in_channels": 24}, False),
        ({"out_channels": 256}, False),
        ({"dtype": torch.float64}, False),
    ],
)
def test_which_layers_are_taken(options, taken):
    plain = {"in_channels": 16, "out_channels": 32, "kernel_size": 3, "padding": 1, "bias": False}
    layer = nn.Conv2d(**plain | options)
    assert takes(layer) == taken
    if not taken:
        with pytest.raises(ValueError, match="has no kernel here: use a torch convolution in groups"):
            Narrow([layer])


@pytest.mark.parametrize(
    ("inputs", "weight", "error"),
    [
        ((1, 40, 4, 4), (32, 16, 3, 3), "inputs of 40 channels do not fit"),
        ((1, 8, 4, 4), (16, 16, 3, 3), "inputs of 8 channels do not fit"),
        ((1, 48, 4, 4), (32, 16, 3, 3), "do not fit weights of \\(32, 16, 3, 3\\)"),
        ((1, 24, 4, 4), (24, 8, 3, 3), "a group of 8 to 8 channels under 3x3 was given"),
        ((1, 32, 4, 4), (32, 16, 5, 5), "under 5x5 was given"),
        ((2**17, 16, 32, 32), (16, 16, 3, 3), "fewer than 2\\*\\*31"),
    ],
)
def test_what_does_not_fit_is_named(inputs, weight, error):
    with pytest.raises(ValueError, match=error):
        narrow_conv(torch.empty(inputs, device="meta"), torch.empty(weight, device="meta"))


def test_double_precision_is_refused():
    with pytest.raises(TypeError, match=r"inputs are torch\.float64: convert them"):
        narrow_conv(torch.empty(1, 16, 4, 4, dtype=torch.float64), torch.empty(16, 16, 3, 3))


SHAPES = [
    (16, 16, 3, 1), (16, 32, 3, 2), (16, 32, 1, 2), (32, 32, 3, 1), (32, 64, 3, 2), (32, 64, 1, 2), (64, 64, 3, 1),
    (16, 32, 3, 1), (16, 32, 1, 1), (64, 128, 3, 2), (64, 128, 1, 2), (128, 128, 3, 1),
]  # fmt: skip


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
KINDS = [
    (torch.bfloat16, shape, *place) for shape in SHAPES for place in [(12, 6, (16, 16)), (5, 7, (13, 9))]
]
KINDS += [(dtype, shape, 3, 1, (1, 3)) for dtype in (torch.float32, torch.float16) for shape in SHAPES[::3]]
KINDS += [(torch.bfloat16, SHAPES[0], 12, 256, (32, 32))]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("dtype", "shape", "groups", "batch", "size"), KINDS)
def test_on_a_gpu_it_agrees_with_float64(dtype, shape, groups, batch, size):
    given = problem(*shape, size, batch, groups, dtype=dtype)
    given = {key: value.cuda() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    inputs, weight = (given[key].clone().requires_grad_() for key in ("inputs", "weight"))
    output = narrow_conv(inputs, weight, given["stride"], given["padding"])
    output.backward(given["grad"])
    check(given, {"output": output.detach(), "inputs": inputs.grad, "weight": weight.grad})


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore")  # the compiler recommends settings
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_a_graph_can_record_a_merged_network(compiled):
    ones = [build("wrn-10-1", 5, (3, 16, 16), seed=seed).cuda() for seed in range(3)]
    images = torch.randn(8, 3, 16, 16, device="cuda").to(memory_format=torch.channels_last)
    network = Merged(ones, images).train()
    assert any(isinstance(module, Narrow) for module in network.modules())
    outputs = torch.compile(network.outputs, dynamic=False) if compiled else network.outputs

    def step():
        for parameter in network.parameters():
            parameter.grad = None
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = outputs(images).logits
        logits.square().sum().backward()
        return logits.detach()

    graph, result = recorded(step)
    images.mul_(2)
    graph.replay()
    with torch.no_grad():
        wanted = torch.stack([one.train().outputs(images).logits for one in ones])
    torch.testing.assert_close(result, wanted, atol=0.1, rtol=0.1)
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
