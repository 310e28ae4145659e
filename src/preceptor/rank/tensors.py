"""A teacher's tensors on a task, with as little work as the cache allows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from preceptor.core import Outputs
from preceptor.data import Task
from preceptor.rank.journal import keep_arrays, read_arrays, teacher_hash
from preceptor.rank.measure import Arguments
from preceptor.zoo import Card, Teacher, Zoo
from preceptor.zoo.cache import FeatureCache
from preceptor.zoo.features import cache_key, extract

Array = np.ndarray


def load_tensors(
    zoo: Zoo, card: Card, task: Task, *, cache: str, device: str, trust_code: bool
) -> tuple[Arguments, float]:
    """What metrics take, on the task's training split, and the seconds of loading and forward pass.

    Where the cache has the features and the head, the teacher itself is not loaded, unless code of its own has
    to show first that it still gives them.
    """
    start = time.perf_counter()
    store = FeatureCache(cache)
    head_file = Path(cache) / "heads" / f"{teacher_hash(card)}.npz"
    outputs = store.get(cache_key(card, task.train))
    head = read_arrays(head_file) if outputs is not None else None
    if outputs is None or head is None or card.runs_code:
        teacher = zoo.load(card.name, device=device, trust_code=trust_code)
        outputs = extract(teacher, task.train, device=device, cache=store)
        head = _write_head(head_file, teacher)
    return _arguments(outputs, head), time.perf_counter() - start


def _arguments(outputs: Outputs, head: dict[str, Array]) -> Arguments:
    return {
        # In memory from here on: metrics pass over them many times, and torch wants to own what it wraps.
        "features": np.array(outputs.features),
        "logits": None if outputs.logits is None else np.array(outputs.logits),
        "labels": outputs.labels,
        "classifier": head["classifier"],
        "centers": head.get("centers"),
    }


def _write_head(path: Path, teacher: Teacher) -> dict[str, Array]:
    """Keep the classifier's rows, and the centres where they are more than those rows again."""
    head: dict[str, Any] = {"classifier": teacher.classifier.detach().cpu().numpy()}
    if teacher.card.centers_source != "classifier":
        head["centers"] = teacher.centers.detach().cpu().numpy()
    keep_arrays(path, head)
    return head
