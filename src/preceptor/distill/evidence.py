"""What a result has to carry with it: command, commit, versions, hardware."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch


def circumstances(device: torch.device, processes: int) -> dict[str, Any]:
    """Where and with what a run is computed; none of it decides what is computed."""
    return {
        "command": " ".join(sys.argv),
        "commit": _commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **_versions("preceptor", "torch", "torchvision", "timm"),
        },
        "hardware": hardware(device),
        "processes": processes,
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """The device and the machine around it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": device.type, "name": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the working folder, where it is a git checkout."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def plain(value: Any) -> Any:
    """A method's option as JSON can hold it; a tensor by its shape and hash."""
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return {"shape": list(value.shape), "sha256": hashlib.sha256(data).hexdigest()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
