"""What a training shows while it runs, and that showing it costs no step."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import rich.console

from preceptor.distill import monitor
from preceptor.distill.train import train
from tests.distill.toys import vector_task


def test_progress_shows_epoch_rate_terms_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=200)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    train(vector_task(), student="mlp-4", epochs=2, progress=True)
    for word in ("none epoch 2/2", "steps/s", "task 1.", "train ", "test "):
        assert word in screen.getvalue()


def test_a_pipe_sees_no_progress(capfd: pytest.CaptureFixture[str]) -> None:
    train(vector_task(), student="mlp-4", epochs=1)
    assert tuple(capfd.readouterr()) == ("", "")


def test_no_step_looks_at_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    original = monitor.Monitor.check
    monkeypatch.setattr(
        monitor.Monitor, "check", lambda self, words: looks.append(1) or original(self, words)
    )
    train(vector_task(), student="mlp-4", epochs=2, batch_size=8)
    assert len(looks) == 2  # 24 steps; one look at the end of each epoch


def test_tensorboard_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "a", tensorboard=True)
    assert list((tmp_path / "a/tensorboard").glob("events.*"))
