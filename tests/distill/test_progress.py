"""What a training shows while it runs, and that showing it costs no step."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import rich.console

from preceptor.distill import monitor
from preceptor.distill.progress import Reporter
from preceptor.distill.train import train
from tests.distill.toys import vector_task


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    """What a terminal of this width is sent."""
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=width)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    return screen


def shown_line(reporter: Reporter) -> str:
    """The bar as it stands."""
    with reporter.bar.console.capture() as captured:
        reporter.bar.console.print(reporter.bar.get_renderable())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


def test_progress_shows_epoch_rate_terms_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch, 200)
    train(vector_task(), student="mlp-4", epochs=2, progress=True)
    for word in ("none epoch 2/2", "steps/s", "task 1.", "train ", "test "):
        assert word in screen.getvalue()


def test_the_epoch_shown_is_the_one_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch, 200)
    reporter = Reporter("none", epochs=2, total_steps=4, show=True, tensorboard=None)
    record = {"train_accuracy": 0.5, "test_accuracy": 0.25}
    seen = [shown_line(reporter)]
    for epoch in range(2):
        reporter.epoch({**record, "epoch": epoch})
        seen.append(shown_line(reporter))
    assert [re.findall(r"epoch (\d)/2", line) for line in seen] == [["1"], ["2"], ["2"]]


def test_a_narrow_terminal_still_shows_epoch_bar_time_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch, 80)
    reporter = Reporter("sinkhorn+probe", epochs=180, total_steps=720, show=True, tensorboard=None)
    reporter.advance()
    reporter.losses({"task": 1.373, "sinkhorn": 20.624, "probe": 0.444})
    reporter.epoch({"epoch": 100, "train_accuracy": 0.5, "test_accuracy": 0.375})
    line = shown_line(reporter)
    for word in ("sinkhorn+probe epoch 102/180", "━" * 9, "-:--:--", "train 50.0 % test 37.5 %"):
        assert word in line
    assert len(line.rstrip("\n").splitlines()) == 1


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
