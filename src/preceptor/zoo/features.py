"""One forward pass of a teacher over a split of a task: features, logits, labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from preceptor.core import ModelOutput, Outputs, PreceptorError
from preceptor.zoo.cache import FeatureCache
from preceptor.zoo.teacher import Teacher

EXTRACTION_VERSION = (
    1  # raise it when extraction changes what it computes: cached features are then left alone
)
MIXED_TOLERANCE = 1e-2  # the most by which mixed precision may change a feature, of the largest one
Precision = Literal["float32", "mixed"]


@dataclass(frozen=True)
class ExtractionProgress:
    """How far an extraction is."""

    done: int
    total: int
    rate: float  # samples a second
    remaining: float  # seconds


def extract(
    teacher: Teacher,
    split: Any,
    *,
    fingerprint: str,
    device: str = "cpu",
    batch_size: int | None = None,
    precision: Precision = "float32",
    on_progress: Callable[[ExtractionProgress], None] | None = None,
    cache: FeatureCache | bool = True,
) -> Outputs:
    """Features, logits and labels of a split, from the cache where they are known.

    Args:
        teacher: Whose.
        split: A `preceptor.data.Split`.
        fingerprint: Of the task the split belongs to.
        device: Where to run.
        batch_size: None chooses one, and halves it as long as memory does not suffice.
        precision: ``mixed`` runs in half precision if, on the first batch, that changes no feature by more
            than `MIXED_TOLERANCE` of the largest one; otherwise in float32.
        on_progress: Called after each batch.
        cache: Where to keep the result; True for the default place, False for nowhere.
    """
    if precision not in ("float32", "mixed"):
        raise PreceptorError(f"precision {precision!r} is unknown; use float32 or mixed")
    if batch_size is not None and batch_size < 1:
        raise PreceptorError(f"a batch size of {batch_size} came; use 1 or more")
    if len(split) == 0:
        raise PreceptorError("the split has no samples; there is nothing to extract features from")

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return _Pass(teacher.to(device), split, torch.device(device), precision, on_progress).run(batch_size)

    labels = np.asarray(split.labels)
    if cache is False:
        features, logits = zip(*batches(), strict=True)
        return Outputs(features=np.concatenate(features), logits=np.concatenate(logits), labels=labels)
    store = FeatureCache() if cache is True else cache
    key = cache_key(teacher, split, fingerprint, precision)
    found = store.get(key)
    if found is None:
        with store.lock(key):
            found = store.get(key)  # another process may have been at it
            if found is None:
                found = store.put(key, batches(), labels, {"teacher": teacher.name})
    return found


def cache_key(teacher: Teacher, split: Any, fingerprint: str, precision: Precision = "float32") -> str:
    """What the features depend on: weights, network, head, preprocessing, data, precision and this code."""
    card = teacher.card
    return FeatureCache.key(
        {
            "weights": card.weights_hash,
            "network": card.check_hash,  # the same weights under another activation give other features
            "head": [card.head.path, card.head.reduction],
            "preprocessing": card.preprocessing.model_dump(mode="json"),
            "data": fingerprint,
            "split": split.fingerprint,
            "precision": precision,
            "code": [metadata.version("preceptor"), EXTRACTION_VERSION],
        }
    )


class _Pass:
    """The forward pass itself."""

    def __init__(
        self,
        teacher: Teacher,
        split: Any,
        device: torch.device,
        precision: Precision,
        on_progress: Callable[[ExtractionProgress], None] | None,
    ) -> None:
        self.teacher = teacher
        self.split = split
        self.device = device
        self.mixed = precision == "mixed" and teacher.runs_on == "torch"
        self.on_progress = on_progress

    def run(self, batch_size: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and logits batch by batch, the next batch being read while one is computed."""
        size = batch_size or self._first_size()
        total, start, began = len(self.split), 0, time.perf_counter()
        with ThreadPoolExecutor(1) as reader:
            waiting = self._read(reader, 0, size)
            while start < total:
                images = waiting.result()
                waiting = self._read(reader, start + len(images), size)
                for output in self._forward(images, start, fixed=batch_size is not None):
                    start += len(output.features)
                    size = min(size, len(output.features)) if start < total and batch_size is None else size
                    yield output.features.float().cpu().numpy(), output.logits.float().cpu().numpy()
                    self._report(start, total, time.perf_counter() - began)

    def _first_size(self) -> int:
        """A batch of about 2^24 input numbers: 5461 images of 32 px, 111 of 224 px, at most 1024."""
        numbers = int(np.prod(self.teacher.preprocessing.input_size))
        budget = 2**24 if self.device.type == "cuda" else 2**22
        return int(min(1024, max(1, budget // numbers)))

    def _read(self, reader: ThreadPoolExecutor, start: int, size: int) -> Future[Any]:
        rows = np.arange(start, min(start + size, len(self.split)))
        return reader.submit(self.split.load, rows) if len(rows) else reader.submit(list)

    def _forward(self, images: Any, start: int, fixed: bool) -> Iterator[ModelOutput]:
        """Outputs of a batch, in halves of halves where memory does not suffice for all of it."""
        try:
            output = self._compute(images, first=start == 0)
        except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            if fixed or len(images) == 1:
                raise PreceptorError(
                    f"memory does not suffice for teacher {self.teacher.name!r} with a batch of "
                    f"{len(images)}; "
                    "use a smaller batch or another device"
                ) from error
            output = None
        if output is not None:
            self._check_finite(output, start)
            yield output
            return
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = (len(images) + 1) // 2
        yield from self._forward(images[:half], start, fixed)
        yield from self._forward(images[half:], start + half, fixed)

    def _compute(self, images: Any, first: bool) -> ModelOutput:
        moved = (
            images.to(self.device)
            if isinstance(images, Tensor)
            else [image.to(self.device) for image in images]
        )
        inputs = self.teacher.preprocessing.apply(moved)
        if not self.mixed:
            return self.teacher.outputs(inputs, maps=False)
        kind = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        with torch.autocast(self.device.type, dtype=kind):
            output = self.teacher.outputs(inputs, maps=False)
        if first:
            exact = self.teacher.outputs(inputs, maps=False)
            error = (output.features.float() - exact.features).abs().max()
            if not error <= MIXED_TOLERANCE * exact.features.abs().max():
                self.mixed = False
                return exact
        return output

    def _check_finite(self, output: ModelOutput, start: int) -> None:
        bad = ~(output.features.isfinite().all(1) & output.logits.isfinite().all(1))
        if bad.any():
            row = start + int(bad.nonzero()[0])
            where = self.split.path(row) or f"number {row}"
            raise PreceptorError(
                f"teacher {self.teacher.name!r} gives numbers that are not finite for sample {where}"
            )

    def _report(self, done: int, total: int, seconds: float) -> None:
        if self.on_progress is not None:
            rate = done / max(seconds, 1e-9)
            self.on_progress(ExtractionProgress(done, total, rate, (total - done) / rate))


def _out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
    )
