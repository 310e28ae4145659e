"""A distilled student beside the same student trained alone."""

from __future__ import annotations

import json
from pathlib import Path

from preceptor import distill
from preceptor.distill.result import baseline_note
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.toys import toy_task


def test_baseline_is_trained_and_said_honestly(tmp_path: Path) -> None:
    teacher = build("cnn-4", 4, (1, 8, 8), seed=5)  # knows nothing
    result = distill(
        "cnn-2", toy_task(), teacher, "sinkhorn", tmp_path / "a", epochs=2, with_baseline=True, weight=300.0
    )
    alone = train(toy_task(), student="cnn-2", epochs=2)
    assert result.baseline_accuracy == alone.accuracy
    stored = json.loads((tmp_path / "a/result.json").read_text())
    assert stored["baseline_accuracy"] == alone.accuracy
    assert stored["below_baseline"] == (result.accuracy < alone.accuracy)
    assert (tmp_path / "a/baseline/model.safetensors").exists()
    assert result.notes[-1] in stored["notes"]


def test_what_the_note_says() -> None:
    assert "10.0 points BELOW its plain baseline (40.0 % against 50.0 %)" in baseline_note(0.4, 0.5)
    assert "10.0 points above" in baseline_note(0.5, 0.4)
    assert "level with" in baseline_note(0.5, 0.5)
