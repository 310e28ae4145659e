"""The whole step as one CUDA graph: a small network's step is mostly the launching of kernels."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.step import StepInputs, TrainingStep

_WARM_UP = 3  # ordinary steps before the capture: they let libraries choose kernels and buffers be made


class GraphedStep:
    """Runs a `TrainingStep` through a graph that is captured at its fourth batch."""

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self._seen = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: StepInputs | None = None
        self._progress = torch.zeros((), device=step.fabric.device)  # read by the graph at every replay
        self._noted: Tensor | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms."""
        return self.step.names

    def __call__(self, inputs: StepInputs, progress: float) -> Tensor:
        """Do the step; the same values as the plain one."""
        if self._graph is None and self._seen < _WARM_UP:
            return self._warm_up(inputs, progress)
        if self._graph is None:
            self._capture(inputs)
        assert self._graph is not None
        assert self._noted is not None
        for entry in fields(StepInputs):
            held, came = getattr(self._inputs, entry.name), getattr(inputs, entry.name)
            if held is not None:
                held.copy_(came, non_blocking=True)
        self._progress.fill_(progress)
        self._graph.replay()
        return self._noted.clone()

    def _warm_up(self, inputs: StepInputs, progress: float) -> Tensor:
        self._seen += 1
        if self._seen == 1:
            self._inputs = replace(
                inputs,
                **{
                    entry.name: value.clone()
                    for entry in fields(StepInputs)
                    if (value := getattr(inputs, entry.name)) is not None
                },
            )
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            noted = self.step(inputs, progress)
        torch.cuda.current_stream().wait_stream(stream)
        return noted

    def _capture(self, inputs: StepInputs) -> None:
        assert self._inputs is not None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._noted = self.step(self._inputs, self._progress)
        except PreceptorError:
            raise
        except RuntimeError as error:
            raise PreceptorError(
                f"the step of method {self.step.method.name} cannot be captured in a CUDA graph "
                f"({str(error).splitlines()[0]}); run without graphs"
            ) from error
        self._graph = graph
