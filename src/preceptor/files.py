"""Files that appear whole or not at all: written beside, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash at any moment, finds the old file or the new one.

    Args:
        path: The file to write or replace; its folder must exist.
        data: The whole content.

    Raises:
        OSError: The disk is full or the folder cannot be written; what was at `path` is left as it was.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system can do that for folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems refuse
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Delete the half-written files that a killed `write_atomically` left in `folder`."""
    for part in Path(folder).glob(".*.part"):
        with contextlib.suppress(OSError):
            part.unlink()
