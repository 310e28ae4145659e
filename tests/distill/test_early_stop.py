"""The best weights by validation, chosen without a look at the test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from preceptor.data.split import Split
from preceptor.data.task import Task
from preceptor.distill.train import train
from tests.distill.toys import toy_task


class Guarded(Split):
    """Says how far the training was whenever it is read."""

    def __init__(self, split: Split, log: Path) -> None:
        super().__init__(split.store, split.labels, split.rows)
        self.log, self.read_after = log, []

    def load(self, indices):
        epochs = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        self.read_after.append(epochs)
        return super().load(indices)


def test_early_stop_keeps_the_best_and_never_reads_test_before_the_end(tmp_path: Path) -> None:
    plain = toy_task(train=120)
    guarded = Guarded(plain.test, tmp_path / "a/log.jsonl")
    task = Task.from_splits(plain.train, guarded, plain.classes)
    result = train(
        task, student="cnn-2", epochs=40, patience=2, validation_fraction=0.2, lr=0.02, out=tmp_path / "a"
    )
    epochs = len(result.history)
    assert epochs < 40
    assert set(guarded.read_after) == {epochs}
    accuracies = [record["validation_accuracy"] for record in result.history]
    best = accuracies.index(max(accuracies))
    assert epochs == best + 3
    assert f"those of epoch {best + 1}" in result.notes[0]
    assert "test_accuracy" not in result.history[0]


def test_a_class_with_one_sample_is_trained_on_and_told() -> None:
    plain = toy_task(train=48)
    rows = np.flatnonzero((plain.train.labels != 3) | (np.arange(48) == 3))
    task = Task.from_splits(plain.train.select(rows), plain.test, plain.classes)
    result = train(task, student="cnn-2", epochs=2, patience=2, validation_fraction=0.25)
    assert result.notes[0] == (
        "class 'd' has a single training image: it stays in training, and none is held out to judge by"
    )
    without = train(task, student="cnn-2", epochs=1)
    assert without.notes == ()
