"""A step as a CUDA graph, the way a training loop records one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def recorded(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Warm up on a side stream, then record; the graph, and where its replays leave the step's result."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result
