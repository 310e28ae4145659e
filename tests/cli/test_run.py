"""``preceptor run``: what goes to which stream."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from preceptor import Zoo, train
from preceptor.cli import app
from preceptor.cli import run as commands
from tests.pipeline.blobs import RECIPE, blobs


@pytest.fixture
def files(tmp_path):
    task = blobs("ab")
    train(task, student="mlp-8", out=tmp_path / "teacher", **RECIPE)
    Zoo(str(tmp_path / "zoo")).add(f"run:{tmp_path / 'teacher'}", name="t")
    parts = {"train": task.train, "test": task.test}
    arrays = {f"{name}_x": np.asarray(split.load(np.arange(len(split)))) for name, split in parts.items()}
    labels = {f"{name}_y": split.labels for name, split in parts.items()}
    np.savez(tmp_path / "data.npz", **arrays, **labels, classes=np.array(task.classes))
    return [str(tmp_path / "zoo"), str(tmp_path / "data.npz"), "--student", "mlp-8", "--device", "cpu", "--no-report",
            "--recipe", "quick", "-o", "epochs=1", "--method", "sinkhorn"]  # fmt: skip


def test_with_json_progress_goes_to_standard_error(files, tmp_path):
    done = CliRunner().invoke(app, ["run", *files, "--out", str(tmp_path / "r"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["schema_version"] == 1
    assert "distilling t by sinkhorn" in done.stderr
    plain = CliRunner().invoke(app, ["run", *files, "--out", str(tmp_path / "s")])
    assert "distilling t by sinkhorn" in plain.stdout


def test_a_bar_counts_the_teachers_and_is_gone_before_the_first_training(files, tmp_path, monkeypatch):
    zoo = Zoo(files[0])
    zoo.add(f"run:{tmp_path / 'teacher'}", name="u")
    seen = []

    @contextmanager
    def watched(description, total):
        with Progress(console=Console(file=io.StringIO())) as bar:
            task = bar.add_task(description, total=total)
            yield bar
            seen.append((description, total, bar.tasks[task].completed))

    monkeypatch.setattr(commands, "progress", watched)
    monkeypatch.setattr(commands, "say", seen.append)
    done = CliRunner().invoke(app, ["run", *files, "--out", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    told = [one if isinstance(one, tuple) else one.split()[0] for one in seen]
    assert told[:3] == [("ranking teachers", 2, 2), "ranked", "training"]
