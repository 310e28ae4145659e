"""One forward pass of a teacher over a split of a task: features, logits, labels."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preceptor.core import ModelOutput, Outputs, PreceptorError
from preceptor.defaults import own_defaults
from preceptor.devices import batch_rows, laid_out, lay_out, resolve_device
from preceptor.zoo.cache import FeatureCache
from preceptor.zoo.card import Card
from preceptor.zoo.teacher import Teacher

EXTRACTION_VERSION = (
    1  # raise it when extraction changes what it computes: cached features are then left alone
)


@own_defaults()
def extract(
    teacher: Teacher,
    split: Any,
    *,
    fingerprint: str | None = None,
    device: str = "cpu",
    batch_size: int | None = None,
    cache: FeatureCache | bool = True,
) -> Outputs:
    """Features, logits and labels of a split, from the cache where they are known.

    Args:
        teacher: Whose.
        split: A `preceptor.data.Split`.
        fingerprint: What to tell entries of the cache apart by beside teacher and split, which already do; None
            for nothing.
        device: Where to run, as torch names it, or ``auto``.
        batch_size: None chooses one, and halves it as long as memory does not suffice.
        cache: Where to keep the result; True for the default place, False for nowhere.
    """
    if batch_size is not None and batch_size < 1:
        raise PreceptorError(f"a batch size of {batch_size} came; use 1 or more")
    if len(split) == 0:
        raise PreceptorError("the split has no samples; there is nothing to extract features from")

    where = resolve_device(device)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return _Pass(teacher.to(where), split, where).run(batch_size)

    labels = np.asarray(split.labels)
    if cache is False:
        features, logits = zip(*batches(), strict=True)
        return Outputs(features=np.concatenate(features), logits=np.concatenate(logits), labels=labels)
    store = FeatureCache() if cache is True else cache
    key = cache_key(teacher.card, split, fingerprint)
    found = store.get(key)
    if found is None:
        with store.lock(key):
            found = store.get(key)  # another process may have been at it
            if found is None:
                found = store.put(key, batches(), labels, {"teacher": teacher.name})
    return found


def cache_key(card: Card, split: Any, fingerprint: str | None = None) -> str:
    """What the features depend on: weights, network, head, preprocessing, samples with their labels, and this code."""
    return FeatureCache.key(
        {
            "weights": card.weights_hash,
            "network": card.check_hash,  # the same weights under another activation give other features
            "head": [card.head.path, card.head.reduction],
            "preprocessing": card.preprocessing.model_dump(mode="json"),
            "data": fingerprint,
            "split": split.fingerprint,
            "code": [metadata.version("preceptor"), EXTRACTION_VERSION],
        }
    )


class _Pass:
    """The forward pass itself."""

    def __init__(self, teacher: Teacher, split: Any, device: torch.device) -> None:
        self.teacher = teacher
        self.split = split
        self.device = device
        lay_out(teacher, device, teacher.preprocessing.input_size)

    def run(self, batch_size: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and logits batch by batch, the next batch being read while one is computed."""
        size = batch_size or batch_rows(self.teacher.preprocessing.input_size, self.device)
        total, start = len(self.split), 0
        with ThreadPoolExecutor(1) as reader:
            waiting = self._read(reader, 0, size)
            while start < total:
                images = waiting.result()
                waiting = self._read(reader, start + len(images), size)
                for output in self._forward(images, start, fixed=batch_size is not None):
                    start += len(output.features)
                    size = min(size, len(output.features)) if start < total and batch_size is None else size
                    yield output.features.float().cpu().numpy(), output.logits.float().cpu().numpy()

    def _read(self, reader: ThreadPoolExecutor, start: int, size: int) -> Future[Any]:
        rows = np.arange(start, min(start + size, len(self.split)))
        return reader.submit(self.split.load, rows) if len(rows) else reader.submit(list)

    def _forward(self, images: Any, start: int, fixed: bool) -> Iterator[ModelOutput]:
        """Outputs of a batch, in halves of halves where memory does not suffice for all of it."""
        try:
            output = self._compute(images)
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

    def _compute(self, images: Any) -> ModelOutput:
        moved = (
            images.to(self.device)
            if isinstance(images, Tensor)
            else [image.to(self.device) for image in images]
        )
        return self.teacher.outputs(
            laid_out(self.teacher.preprocessing.apply(moved), self.teacher), maps=False
        )

    def _check_finite(self, output: ModelOutput, start: int) -> None:
        bad = ~(output.features.isfinite().all(1) & output.logits.isfinite().all(1))
        if bad.any():
            row = start + int(bad.nonzero()[0])
            where = self.split.path(row) or f"number {row}"
            raise PreceptorError(
                f"teacher {self.teacher.name!r} gives numbers that are not finite for sample {where}"
            )


def _out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
    )
