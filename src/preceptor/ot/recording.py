"""Stages of a computation as CUDA graphs, kept for shapes that come again.

A stage of many small launches takes the host longer to send than the device to run. The first time a shape comes its
stages run as they are, which also compiles their kernels; from the second time on they are replayed from graphs over
buffers of their own, which inputs are copied into.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor

KEPT = 8  # recordings; each holds the memory of its buffers
LARGEST = 2**23  # numbers among the inputs: with more, the device takes longer than the host anyhow


class Staged(Protocol):
    """What can be recorded: stages that wait for nothing and leave their results in attributes."""

    inputs: tuple[Tensor, ...]

    def begin(self) -> None:
        """From the inputs on."""

    def go_on(self) -> None:
        """Once more of what may be needed several times."""

    def end(self) -> None:
        """To the results."""


class _Plain:
    """The stages as they are."""

    replayed = False

    def __init__(self, staged: Staged) -> None:
        self._staged = staged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._staged, name)


class _Recorded:
    """The stages as graphs."""

    replayed = True

    def __init__(self, staged: Staged) -> None:
        self._staged = staged
        self.lock = Lock()
        pool = torch.cuda.graph_pool_handle()
        self.begin, self.go_on, self.end = (
            _record(stage, pool) for stage in (staged.begin, staged.go_on, staged.end)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._staged, name)


def _record(stage: Callable[[], None], pool: Any) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        stage()
    return graph.replay


_recordings: OrderedDict[tuple, _Recorded | None] = OrderedDict()
_lock = Lock()


def clear() -> None:
    """Forget all recordings and give their memory back."""
    with _lock:
        _recordings.clear()


@contextmanager
def stages(make: Callable[..., Staged], inputs: tuple[Tensor, ...], *settings: float) -> Iterator[Any]:
    """The stages of ``make(*inputs, *settings)``, which nobody else uses within the context.

    The results of replayed stages lie in buffers that the next user overwrites: clone what is to stay.
    """
    recorded = _find(make, inputs, settings) if inputs[0].is_cuda else None
    if recorded is None:
        yield _Plain(make(*inputs, *settings))
        return
    with recorded.lock:
        with torch.inference_mode(False), torch.no_grad():
            torch._foreach_copy_(recorded.inputs, inputs)
        yield recorded


def _find(make: Callable[..., Staged], inputs: tuple[Tensor, ...], settings: tuple) -> _Recorded | None:
    """A recording for these shapes on this stream, made when they come for the second time."""
    if torch.cuda.is_current_stream_capturing() or sum(x.numel() for x in inputs) > LARGEST:
        return None
    stream = torch.cuda.current_stream(inputs[0].device)
    shapes = tuple(tuple(x.shape) for x in inputs)
    key = (make, inputs[0].device, stream.cuda_stream, shapes, inputs[0].dtype, settings)
    with _lock:
        if key not in _recordings:
            _recordings[key] = None
        elif _recordings[key] is None:
            with torch.inference_mode(False), torch.no_grad():  # or no later user could write to the buffers
                _recordings[key] = _Recorded(make(*(x.clone() for x in inputs), *settings))
        _recordings.move_to_end(key)
        while len(_recordings) > KEPT:
            _recordings.popitem(last=False)
        return _recordings[key]
