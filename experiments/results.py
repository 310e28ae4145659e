"""Rows of results: one JSON object a line, each with its evidence; a run that is there is never repeated."""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def evidence() -> dict[str, Any]:
    """What a reader needs to believe and repeat a number."""
    return {
        "command": _command(sys.argv),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _command(arguments: list[str]) -> str:
    """The command with the caller's own folders as words: ``--data DATA``."""
    words = [Path(arguments[0]).name]
    for before, word in itertools.pairwise(arguments):
        words.append(before.lstrip("-").upper() if before.startswith("--") and "/" in word else word)
    return " ".join(words)


@functools.cache
def commit() -> str | None:
    """The commit of the checkout when it was first asked for, or the one that a copy without git is told to be of.

    Ask at the start: a checkout may move on while a long run goes on with the code that it has read.
    """
    if told := os.environ.get("PRECEPTOR_COMMIT"):
        return told
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return asked.stdout.strip() or None


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def read(path: Path) -> list[dict[str, Any]]:
    """All rows of a file; none where there is no file.

    A last line that is cut short, by a machine that went away while writing, is not a row; its run is repeated.
    """
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path.name}: a line is cut short and left out")
    return rows


def append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows, each with the evidence of this process, in one write: other processes may be adding theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    proof = evidence()
    lines = [json.dumps({**row, "evidence": proof}, sort_keys=True, allow_nan=False) + "\n" for row in rows]
    cut = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size
    with path.open("ab", buffering=0) as file:
        file.write((("\n" if cut else "") + "".join(lines)).encode())
        os.fsync(file.fileno())


def put(marker: str, text: str, page: Path) -> None:
    """Write a text between its markers on a page."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    whole = page.read_text()
    if begin not in whole:
        raise SystemExit(f"{page} has no marker {begin}")
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")
