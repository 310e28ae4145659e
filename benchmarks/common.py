"""What every benchmark does at its end: numbers with their evidence to results/, the table into the docs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "results" / "benchmarks"


def evidence() -> dict[str, Any]:
    """Command, commit, machine and versions of this process."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": os.environ.get("PRECEPTOR_COMMIT") or asked.stdout.strip() or None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def keep(name: str, data: dict[str, Any]) -> None:
    """Write a benchmark's numbers with their evidence."""
    target = RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**data, "evidence": evidence()}, indent=2) + "\n")


def kept(name: str) -> dict[str, Any]:
    """The numbers of a benchmark's last run, wherever that was."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def put(marker: str, text: str, page: Path = PAGE) -> None:
    """Write a text between its markers on a page."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    whole = page.read_text()
    if begin not in whole:
        raise SystemExit(f"{page} has no marker {begin}")
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


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
