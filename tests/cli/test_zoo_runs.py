"""A run brings the same class centres into a zoo whichever way it enters."""

from __future__ import annotations

from pathlib import Path

import torch
import typer
from typer.testing import CliRunner

from preceptor.cli.train import train
from preceptor.cli.zoo import zoo_app
from preceptor.zoo import Zoo


def test_a_run_added_later_has_the_centres_of_one_added_while_training(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command("train")(train)
    app.add_typer(zoo_app, name="zoo")

    def call(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output + repr(result.exception)
        return result.output

    zoo = tmp_path / "zoo"
    line = (
        "train",
        "glyphs:digits?per_class=4&test_per_class=2",
        "--arch",
        "cnn-2",
        "--epochs",
        1,
        "--device",
        "cpu",
    )
    call(*line, "--out", tmp_path / "now", "--zoo", zoo, "--name", "now")
    call(*line, "--out", tmp_path / "later")
    told = call("zoo", "add", zoo, f"run:{tmp_path / 'later'}", "--name", "later")
    assert "centres from stored with its training" in told.replace("\n", " ")
    assert Zoo(zoo).card("now").centers_source == Zoo(zoo).card("later").centers_source == "stored"
    torch.testing.assert_close(Zoo(zoo).load("later").centers, Zoo(zoo).load("now").centers)
