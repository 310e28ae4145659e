"""The cache's commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from preceptor.cli.cache import cache_app
from preceptor.zoo import FeatureCache


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cache_app, list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_show_and_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path))
    monkeypatch.setenv("PRECEPTOR_CACHE_LIMIT", "5MB")
    assert "0 entries, 0.0 MiB of at most 5 MiB" in call("show")
    rows = np.ones((4, 3), np.float32)
    FeatureCache().put("k" * 40, iter([(rows, rows)]), np.zeros(4, np.int64), {"teacher": "pets"})
    shown = call("show")
    assert "1 entries" in shown
    assert "pets" in shown
    assert "kkkkkkkkkkkk" in shown
    about = json.loads(call("show", "--json"))
    assert about["location"] == str(tmp_path / "features")
    assert about["limit"] == 5 * 2**20
    assert [(entry["teacher"], entry["samples"]) for entry in about["entries"]] == [("pets", 4)]
    assert about["bytes"] == about["entries"][0]["size"] > 0
    assert json.loads(call("clear", "--json")) == {"cleared": 1}
    assert call("clear") == "cleared 0 entries\n"
    assert json.loads(call("show", "--json"))["entries"] == []


@pytest.mark.parametrize("command", ["show", "clear"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: preceptor cache {command}" in " ".join(call(command, "--help").split())
