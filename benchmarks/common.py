"""What every benchmark does at its end: numbers with their evidence to results/, the table into the docs."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.results import ROOT, commit, processor, put

PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "results" / "benchmarks"


def evidence() -> dict[str, Any]:
    """Command, commit, machine and versions of this process."""
    return {
        "command": shlex.join(
            ["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_impersonal, sys.argv[1:])]
        ),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
    }


def _impersonal(word: str) -> str:
    """A folder of the caller's own as a word."""
    return "FOLDER" if Path(word).is_absolute() else word


def keep(name: str, data: dict[str, Any]) -> None:
    """Write a benchmark's numbers with their evidence."""
    target = RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**data, "evidence": evidence()}, indent=2) + "\n")


def kept(name: str) -> dict[str, Any]:
    """The numbers of a benchmark's last run, wherever that was."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def show(name: str, table: str, *, page: Path = PAGE, marker: str | None = None) -> None:
    """Put a table of kept numbers on the page, with the machine they come from."""
    proof = kept(name)["evidence"]
    machine = f"{proof['hardware']}, {proof['threads']} threads, torch {proof['versions']['torch']}"
    put(marker or name, f"{table}\n\n`{proof['command']}`, {machine}, {proof['date'][:10]}.", page)


def write_section(
    name: str,
    table: str,
    data: dict[str, Any],
    *,
    quick: bool = False,
    page: Path = PAGE,
    marker: str | None = None,
) -> None:
    """Keep a benchmark's numbers and show its table; a quick run does neither."""
    if not quick:
        keep(name, data)
        show(name, table, page=page, marker=marker)
