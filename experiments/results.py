"""Rows of results: one JSON object a line, each with its evidence; a run that is there is never repeated."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

RESULTS = Path(__file__).resolve().parent.parent / "results"


def evidence() -> dict:
    """What a reader needs to believe and repeat a number."""
    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else platform.processor() or platform.machine()
    )
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": os.environ.get("PRECEPTOR_COMMIT") or _commit(),
        "hardware": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> str | None:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def read(path: Path) -> list[dict]:
    """All rows of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, rows: Iterable[dict]) -> None:
    """Add rows, each with the evidence of this process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    proof = evidence()
    with path.open("a") as file:
        for row in rows:
            file.write(json.dumps({**row, "evidence": proof}, sort_keys=True) + "\n")


def key(row: dict, fields: Iterable[str]) -> str:
    """What makes two rows the same run."""
    return json.dumps([row.get(field) for field in fields], sort_keys=True)
