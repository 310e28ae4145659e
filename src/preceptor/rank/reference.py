"""A yardstick for scores: what the same network says about a task without ever having been trained."""

from __future__ import annotations

import copy

import torch

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.metrics.sinkhorn import sinkhorn_assessment
from preceptor.zoo import Teacher, extract

SAMPLES = 2000


def untrained_score(teacher: Teacher, task: Task, *, device: str = "cpu", seed: int = 0) -> float | None:
    """The `sinkhorn` score of the teacher's network with fresh random weights, on at most 2,000 samples.

    None where the network cannot be made anew (ONNX, or layers that do not know their own initialisation).
    """
    if teacher.runs_on != "torch":
        return None
    twin = copy.deepcopy(teacher.network.network)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not _reset(twin):
            return None
    fresh = Teacher.from_module(
        twin, name="untrained", classes=teacher.classes, preprocessing=teacher.preprocessing
    )
    part = task.sample(SAMPLES, seed) if SAMPLES < len(task.train) else task
    outputs = extract(fresh, part.train, device=device, cache=False)
    try:
        return sinkhorn_assessment(
            features=outputs.features, logits=outputs.logits, labels=outputs.labels,
            classifier=fresh.classifier.cpu().numpy(),
        ).score  # fmt: skip
    except PreceptorError:  # features that are constant or not finite: worse than anything trained
        return float("-inf")


def _reset(network: torch.nn.Module) -> bool:
    """Give every layer fresh weights; False where parameters are left that no layer can reset."""
    covered: set[int] = set()
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            covered |= {id(parameter) for parameter in module.parameters(recurse=False)}
    return all(id(parameter) in covered for parameter in network.parameters())
