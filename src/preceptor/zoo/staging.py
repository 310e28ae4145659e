"""Hidden folders in which something is built before it is renamed, and the clearing of dead ones."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from pathlib import Path

STALE_SECONDS = 24 * 3600  # unfinished work that nobody wrote to for so long is dead, wherever it ran


def hidden_path(root: Path, purpose: str) -> Path:
    """A fresh hidden path in `root` that says which process it belongs to."""
    return root / f".{purpose}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def sweep(root: Path) -> None:
    """Delete what killed processes left behind in `root`."""
    import psutil

    host = socket.gethostname()
    for path in (*root.glob(".staging-*"), *root.glob(".trash-*"), *root.glob(".total-*")):
        try:
            owner, process, _ = path.name.split("-", 1)[1].rsplit("-", 2)
            dead = (owner == host and not psutil.pid_exists(int(process))) or _is_old(path)
        except (ValueError, FileNotFoundError):
            continue
        if dead:
            _delete(path)
    for path in root.glob(".*.????????.part"):  # of `write_atomically`, whose names do not say who writes
        with contextlib.suppress(FileNotFoundError):
            if _is_old(path):
                _delete(path)


def _is_old(path: Path) -> bool:
    """Whether nobody wrote to it for long; a folder's own time does not show that files in it are written to."""
    written = max(part.lstat().st_mtime for part in (path, *path.glob("*")))
    return time.time() - written > STALE_SECONDS


def discard(path: Path) -> bool:
    """Make a folder or a file vanish at once (by a rename) and then delete it; False where there was none."""
    trash = hidden_path(path.parent, "trash")
    try:
        os.rename(path, trash)
    except FileNotFoundError:
        return False
    _delete(trash)
    return True


def _delete(path: Path) -> None:
    """Delete a folder with all that is in it, a file, or a link but not what it leads to; as far as that goes."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()
