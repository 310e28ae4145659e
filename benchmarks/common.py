"""What every benchmark does at its end: numbers with their evidence to results/, the table into the docs."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.results import ROOT, commit, processor, put

from preceptor.files import write_atomically

commit()  # of the code that runs now, should the checkout move on
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


def write(name: str, data: dict[str, Any]) -> None:
    """Write a benchmark's numbers as they are: their rows have evidence of their own."""
    target = RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, (json.dumps(data, indent=2) + "\n").encode())


def keep(name: str, data: dict[str, Any]) -> None:
    """Write numbers that this process has made, all of them, with its evidence."""
    write(name, {**data, "evidence": evidence()})


def keep_rows(name: str, rows: Sequence[dict[str, Any]], cell: Sequence[str]) -> None:
    """Write rows that this process has made in the place of those of the same cells; others stay, with their evidence.

    Args:
        name: Of the benchmark.
        rows: What was made.
        cell: The fields that tell rows apart.
    """
    earlier = kept(name) if (RESULTS / f"{name}.json").exists() else {"rows": []}
    proof = evidence()
    new = {tuple(row[field] for field in cell): {**row, "evidence": proof} for row in rows}
    old = [
        {**row, "evidence": row.get("evidence", earlier.get("evidence"))}
        for row in earlier["rows"]
        if tuple(row[field] for field in cell) not in new
    ]
    write(name, {"rows": [*old, *new.values()]})


def kept(name: str) -> dict[str, Any]:
    """The numbers of a benchmark's last run, wherever that was."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def proofs_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The evidence of each row, or the one of all: under `evidence`, by the rows' names or at the rows themselves."""
    held = data.get("evidence")
    if held is None:
        return [row["evidence"] for rows in data.values() if isinstance(rows, list) for row in rows]
    return [held] if "commit" in held else list(held.values())


def told(proofs: Sequence[dict[str, Any]]) -> str:
    """The commands that made the rows of a table, how many each, when, and on what."""
    machines = "; ".join(dict.fromkeys(
        f"{proof['hardware']}, {proof['threads']} threads, torch {proof['versions']['torch']}"
        for proof in proofs if proof["command"]
    ))  # fmt: skip
    runs: dict[str | None, list[str]] = {}
    for proof in proofs:
        runs.setdefault(proof["command"], []).append(proof["date"][:10])
    if len(runs) == 1 and len(set(dates := next(iter(runs.values())))) == 1:
        return f"{_code(proofs[0]['command'])}, {machines}, {dates[0]}."
    parts = [
        f"{_code(command) if command else 'a command that was not kept'} "
        f"({len(dates)} row{'s' * (len(dates) > 1)}, {' and '.join(sorted(set(dates)))})"
        for command, dates in sorted(runs.items(), key=lambda run: -len(run[1]))
    ]
    return f"Made by {', '.join(parts)}: {machines}."


def _code(text: str) -> str:
    """As code in Markdown, whatever backticks there are in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def show(name: str, table: str, *, page: Path | None = None, marker: str | None = None) -> None:
    """Put a table of kept numbers on the page, with what made them."""
    put(marker or name, f"{table}\n\n{told(proofs_of(kept(name)))}", page or PAGE)


def write_section(
    name: str,
    table: str,
    data: dict[str, Any],
    *,
    quick: bool = False,
    page: Path | None = None,
    marker: str | None = None,
) -> None:
    """Keep a benchmark's numbers, all of this run, and show its table; a quick run does neither."""
    if not quick:
        keep(name, data)
        show(name, table, page=page, marker=marker)
