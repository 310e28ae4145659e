"""Runs the narrow convolutions in Triton's interpreter, which has to be chosen before import.

Takes a folder with cases, adds the answers: outputs and gradients, those of a merged network, and what else has to be
seen where kernels run.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
from experiments.merged import Merged
from torch import nn

from experiments import narrow, narrow_kernels
from preceptor.models import build


def answer(case):
    channels = (case["weight"].shape[1], len(case["weight"]) // case["groups"])
    inputs, weight = (case[key].clone().requires_grad_() for key in ("inputs", "weight"))
    with ExitStack() as stack:
        for table, form in case["forms"].items():
            entry = {channels: narrow_kernels.Form(**form)}
            stack.enter_context(patch.dict(getattr(narrow_kernels, table), entry))
        output = narrow.narrow_conv(inputs, weight, case["stride"], case["padding"])
        output.backward(case["grad"])
    return {"output": output.detach(), "inputs": inputs.grad, "weight": weight.grad}


def merged(case):
    def networks():
        return [build(case["arch"], 5, case["images"].shape[1:], seed=seed) for seed in (0, 1)]

    network = Merged(networks(), case["images"])
    out = network.train().outputs(case["images"])
    (out.logits.square().sum() + out.maps[1].square().sum()).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    network.write_back(written := networks())
    narrow_ones = [name for name, module in network.named_modules() if isinstance(module, narrow.Narrow)]
    return {
        "narrow": narrow_ones,
        "logits": out.logits.detach(),
        "grads": {name: p.grad for name, p in network.named_parameters()},
        "written": [one.state_dict() for one in written],
    }


def spared():
    """Whether a gradient that nobody asked for stays unasked for."""
    layer = narrow.Narrow([nn.Conv2d(16, 16, 3, padding=1, bias=False)])
    narrow._input_grad, kept = None, narrow._input_grad  # calling None fails
    layer(torch.randn(1, 16, 2, 2)).sum().backward()
    narrow._input_grad, narrow._weight_grad = kept, None
    layer.weight.requires_grad_(False)
    inputs = torch.randn(1, 16, 2, 2, requires_grad=True)
    layer(inputs).sum().backward()
    return inputs.grad is not None


def autocast(case):
    layer = narrow.Narrow([nn.Conv2d(16, 32, 3, 2, 1, bias=False) for _ in range(2)])
    layer.load_state_dict({"weight": case["weight"]})
    with torch.autocast("cpu", torch.float16, cache_enabled=False):
        output = layer(case["inputs"])
    output.float().square().sum().backward()
    return {"output": output.detach(), "weight": layer.weight.grad}


def main() -> None:
    place = Path(sys.argv[1])
    given = torch.load(place / "given.pt", weights_only=True)
    found = {name: answer(case) for name, case in given["cases"].items()}
    rest = {"merged": merged(given["merged"]), "autocast": autocast(given["autocast"]), "spared": spared()}
    torch.save({"cases": found, **rest}, place / "found.pt")


if __name__ == "__main__":
    main()
