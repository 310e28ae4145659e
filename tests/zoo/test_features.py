"""Extraction gives what the teacher says, once, whatever the batch size and the place."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.zoo import FeatureCache, Preprocessing, Teacher, Zoo, extract
from preceptor.zoo import features as features_module
from preceptor.zoo.cache import parse_size
from preceptor.zoo.centers import centers_from_task
from preceptor.zoo.features import MIXED_TOLERANCE, ExtractionProgress, cache_key
from tests.zoo.conftest import CLASSES


def make_task(count: int = 20, seed: int = 0, classes: tuple[str, ...] = CLASSES) -> Task:
    generator = np.random.default_rng(seed)
    shape = (count, 3, 20, 16)
    train, test = (generator.integers(0, 256, shape, dtype=np.uint8) for _ in range(2))
    labels = np.arange(count) % len(classes)
    return Task.from_arrays(train, labels, test, labels, classes=classes, name="made")


@pytest.fixture
def teacher(zoo: Zoo, run: Path) -> Teacher:
    zoo.add(f"run:{run}", name="a")
    return zoo.load("a")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that went through a teacher."""
    seen: list[int] = []
    original = Teacher.outputs

    def counted(self: Teacher, inputs: torch.Tensor, maps: bool = True) -> Any:
        seen.append(len(inputs))
        return original(self, inputs, maps)

    monkeypatch.setattr(Teacher, "outputs", counted)
    return seen


def expected(teacher: Teacher, images: torch.Tensor) -> Any:
    return teacher.outputs(teacher.preprocessing.apply(images))


@pytest.mark.parametrize("batch_size", [None, 1, 3, 20, 100])
@pytest.mark.parametrize("cache", [True, False])
def test_features_logits_and_labels(teacher: Teacher, batch_size: int | None, cache: bool) -> None:
    task = make_task()
    came = extract(teacher, task.train, fingerprint=task.fingerprint, batch_size=batch_size, cache=cache)
    want = expected(teacher, task.train.load(np.arange(20)))
    np.testing.assert_allclose(came.features, want.features.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(came.logits, want.logits.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(came.labels, task.train.labels)
    assert isinstance(came.features, np.memmap) == cache


def test_images_of_many_sizes(teacher: Teacher, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(4):
            size = (*generator.integers(17, 40, 2), 3)
            Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).save(
                tmp_path / "data" / name / f"{number}.png"
            )
    task = Task(tmp_path / "data")
    came = extract(teacher, task.train, fingerprint=task.fingerprint, batch_size=2)
    for row in range(len(task.train)):
        want = expected(teacher, task.train.load([row]))
        np.testing.assert_allclose(came.features[row], want.features[0].numpy(), rtol=1e-4, atol=1e-5)


def test_a_second_time_costs_no_forward_pass(teacher: Teacher, calls: list[int]) -> None:
    task = make_task()
    first = extract(teacher, task.train, fingerprint=task.fingerprint)
    assert sum(calls) == 20
    second = extract(teacher, task.train, fingerprint=task.fingerprint, batch_size=4)
    assert sum(calls) == 20
    np.testing.assert_array_equal(first.features, second.features)
    extract(teacher, task.test, fingerprint=task.fingerprint)
    assert sum(calls) == 40, "the other split has the same labels but is not the same data"


def test_the_key_follows_everything_the_features_depend_on(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()

    def key(
        card: Any = teacher.card, split: Any = task.train, fingerprint: str = "f", precision: Any = "float32"
    ) -> str:
        return cache_key(SimpleNamespace(card=card), split, fingerprint, precision)  # type: ignore[arg-type]

    card = teacher.card
    weights = {**card.files, "weights.safetensors": card.files["check.safetensors"]}
    changed = [
        key(card.model_copy(update={"files": weights})),
        key(card.model_copy(update={"head": card.head.model_copy(update={"reduction": "mean"})})),
        key(card.model_copy(update={"preprocessing": Preprocessing.for_size((3, 16, 16))})),
        key(split=task.test),
        key(fingerprint="g"),
        key(precision="mixed"),
    ]
    same = key(card.model_copy(update={"name": "other", "accuracy": 0.1}))
    monkeypatch.setattr(features_module, "EXTRACTION_VERSION", 2)
    changed.append(key())
    monkeypatch.undo()
    assert same == key()
    assert len({key(), *changed}) == len(changed) + 1


def test_progress_has_rate_and_remaining_time(teacher: Teacher) -> None:
    task, seen = make_task(), []
    extract(teacher, task.train, fingerprint="f", batch_size=8, on_progress=seen.append, cache=False)
    assert [(p.done, p.total) for p in seen] == [(8, 20), (16, 20), (20, 20)]
    assert all(isinstance(p, ExtractionProgress) and p.rate > 0 for p in seen)
    assert seen[0].remaining == pytest.approx(12 / seen[0].rate)
    assert seen[-1].remaining == 0


def test_the_batch_is_halved_until_memory_suffices(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    task, tried = make_task(), []
    want = extract(teacher, task.train, fingerprint="f", cache=False)
    original = Teacher.outputs

    def scarce(self: Teacher, inputs: torch.Tensor, maps: bool = True) -> Any:
        tried.append(len(inputs))
        if len(inputs) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(self, inputs, maps)

    monkeypatch.setattr(Teacher, "outputs", scarce)
    came = extract(teacher, task.train, fingerprint="f", cache=False)
    np.testing.assert_allclose(came.features, want.features, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(came.labels, want.labels)
    assert max(tried) == 20
    with pytest.raises(PreceptorError, match="memory does not suffice for teacher 'a' with a batch of 10"):
        extract(teacher, task.train, fingerprint="f", batch_size=10, cache=False)

    def other(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something else is broken")

    monkeypatch.setattr(Teacher, "outputs", other)
    with pytest.raises(RuntimeError, match="something else"):
        extract(teacher, task.train, fingerprint="f", cache=False)


def test_mixed_precision_stays_within_its_tolerance(teacher: Teacher) -> None:
    task = make_task()
    exact = extract(teacher, task.train, fingerprint="f", cache=False)
    mixed = extract(teacher, task.train, fingerprint="f", precision="mixed", cache=False)
    difference = np.abs(mixed.features - exact.features).max()
    assert 0 < difference <= MIXED_TOLERANCE * np.abs(exact.features).max()
    assert mixed.features.dtype == np.float32


def test_mixed_precision_gives_way_where_it_changes_the_features(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()
    exact = extract(teacher, task.train, fingerprint="f", batch_size=8, cache=False)
    monkeypatch.setattr(features_module, "MIXED_TOLERANCE", 1e-9)
    came = extract(teacher, task.train, fingerprint="f", batch_size=8, precision="mixed", cache=False)
    np.testing.assert_array_equal(came.features, exact.features)


def test_features_that_are_not_finite_are_refused(teacher: Teacher) -> None:
    teacher.network.network.classifier.bias[0] = torch.nan
    with pytest.raises(
        PreceptorError, match="teacher 'a' gives numbers that are not finite for sample number 0"
    ):
        extract(teacher, make_task().train, fingerprint="f", cache=False)


def test_wrong_calls(teacher: Teacher) -> None:
    task = make_task()
    with pytest.raises(PreceptorError, match="precision 'half' is unknown"):
        extract(teacher, task.train, fingerprint="f", precision="half")  # type: ignore[arg-type]
    with pytest.raises(PreceptorError, match="a batch size of 0"):
        extract(teacher, task.train, fingerprint="f", batch_size=0)
    with pytest.raises(PreceptorError, match="no samples"):
        extract(teacher, task.train.select([]), fingerprint="f")


def entry_of(cache: FeatureCache, key: str, rows: int = 100) -> None:
    data = np.ones((rows, 100), np.float32)
    cache.put(key, iter([(data, data)]), np.zeros(rows, np.int64), {"teacher": key})
    time.sleep(0.01)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c", limit=250_000)  # three entries of about 80 kB
    for key in ("a", "b", "c"):
        entry_of(cache, key)
    assert cache.get("a") is not None
    time.sleep(0.01)
    entry_of(cache, "d")
    assert [entry.key for entry in cache.entries()] == ["d", "a", "c"]
    assert cache.get("b") is None
    assert sum(entry.size for entry in cache.entries()) <= cache.limit


def test_what_is_larger_than_the_limit_is_returned_and_not_kept(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c", limit=1000)
    data = np.arange(1000, dtype=np.float32).reshape(10, 100)
    came = cache.put("a", iter([(data, data)]), np.zeros(10, np.int64), {"teacher": "t"})
    assert cache.entries() == []
    np.testing.assert_array_equal(came.features, data)


def test_a_failed_pass_leaves_nothing(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "c")
    data = np.ones((5, 2), np.float32)

    def breaks() -> Any:
        yield data, data
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.put("a", breaks(), np.zeros(10, np.int64), {"teacher": "t"})
    with pytest.raises(PreceptorError, match="5 rows of features came for 10 samples"):
        cache.put("a", iter([(data, data)]), np.zeros(10, np.int64), {"teacher": "t"})
    assert cache.get("a") is None
    assert list(cache.root.iterdir()) == []


def test_a_damaged_entry_is_computed_again(teacher: Teacher, calls: list[int]) -> None:
    task, cache = make_task(), FeatureCache()
    extract(teacher, task.train, fingerprint="f")
    (entry,) = cache.entries()
    (cache.root / entry.key / "features.npy").write_bytes(b"broken")
    came = extract(teacher, task.train, fingerprint="f")
    assert sum(calls) == 40
    assert came.features.shape == (20, 16)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    import socket

    cache = FeatureCache(tmp_path / "c")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = cache.root / f".staging-{socket.gethostname()}-{child.pid}-abcd"
    alive = cache.root / f".staging-{socket.gethostname()}-{os.getpid()}-abcd"
    left.mkdir(parents=True)
    alive.mkdir()
    entry_of(cache, "a")
    assert not left.exists()
    assert alive.exists()


def test_location_and_limit_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "1.5 GB")
    cache = FeatureCache()
    assert cache.root == tmp_path / "here" / "features"
    assert cache.limit == 3 * 2**29
    monkeypatch.delenv("PRECEPTOR_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert FeatureCache().root == tmp_path / ".cache" / "preceptor" / "features"
    assert parse_size("800M") == 800 * 2**20
    with pytest.raises(PreceptorError, match="'lots' is no size for the cache"):
        parse_size("lots")


def test_centres_are_the_mean_features_of_the_teachers_own_classes(zoo: Zoo, run: Path) -> None:
    task = make_task(30, classes=("dog", "cat", "bee", "ant"))
    card = zoo.add(f"run:{run}", name="a", centers_from=task)
    assert card.centers_source == "data"
    teacher = zoo.load("a")
    for index, name in enumerate(teacher.classes):
        rows = np.flatnonzero(task.train.labels == task.classes.index(name))
        mean = expected(teacher, task.train.load(rows)).features.mean(0)
        torch.testing.assert_close(teacher.centers[index], mean, rtol=1e-4, atol=1e-5)
    assert zoo.verify("a") == []


def test_centres_need_all_of_the_teachers_classes(teacher: Teacher, zoo: Zoo, run: Path) -> None:
    with pytest.raises(PreceptorError, match="has none named bee, cat"):
        centers_from_task(teacher, make_task(classes=("ant", "dog")))
    with pytest.raises(PreceptorError, match="centers and centers_from came together"):
        zoo.add(f"run:{run}", name="b", centers=torch.ones(3, 16), centers_from=make_task())
    assert zoo.names() == ["a"]


def test_a_teacher_out_of_a_network_at_hand() -> None:
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    )
    teacher = Teacher.from_module(
        net, name="mine", classes=CLASSES, preprocessing=Preprocessing.for_size((3, 2, 2))
    )
    inputs = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(teacher.features(inputs), net[:3](inputs).detach())
    torch.testing.assert_close(teacher.bias, net[3].bias.detach())
    task = make_task()
    assert extract(teacher, task.train, fingerprint="f").features.shape == (20, 5)
    with pytest.raises(PreceptorError, match="says 2 classes"):
        Teacher.from_module(
            net, name="m", classes=("a", "b"), preprocessing=Preprocessing.for_size((3, 2, 2))
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_gpu(teacher: Teacher) -> None:
    task = make_task()
    exact = extract(teacher, task.train, fingerprint="f", cache=False)
    for precision, tolerance in (("float32", 5e-3), ("mixed", 2 * MIXED_TOLERANCE)):
        came = extract(teacher, task.train, fingerprint="f", device="cuda", precision=precision, cache=False)  # type: ignore[arg-type]
        np.testing.assert_allclose(
            came.features, exact.features, atol=tolerance * np.abs(exact.features).max()
        )
