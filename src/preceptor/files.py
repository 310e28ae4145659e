"""Files that appear whole or not at all: written beside, flushed to the disk, then renamed; and the cache's folder."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import tempfile
from pathlib import Path

_ELSEWHERE = "name a folder in which you may write"
_ADVICE = {
    errno.ENOENT: f"check the path, or {_ELSEWHERE}",
    errno.EACCES: "ask for the right to use it, or name another place",
    errno.EPERM: "ask for the right to use it, or name another place",
    errno.EROFS: _ELSEWHERE,
    errno.EEXIST: "a file stands where a folder is needed: name another folder",
    errno.ENOTDIR: "a file stands where a folder is needed: name another folder",
    errno.EISDIR: "a folder stands where a file is needed: name a file",
    errno.ENOTEMPTY: "name another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space and try again",
    errno.EFBIG: "raise the limit on a file's size (ulimit -f) and try again",
    errno.EMFILE: "raise the limit of open files (ulimit -n) and try again",
}


def cache_folder() -> Path:
    """``$PRECEPTOR_CACHE``, or ``preceptor`` in the user's cache folder (``$XDG_CACHE_HOME``, or ``~/.cache``)."""
    if given := os.environ.get("PRECEPTOR_CACHE"):
        return local_path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "preceptor"


def local_path(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` as the home folder, which a shell leaves to us in ``--out=~/x``."""
    return Path(os.path.expanduser(path))


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
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError) and error.filename is None:  # a write knows its descriptor only
            error.filename = os.fspath(target)
        raise
    sync_folder(target.parent)


def check_can_write(path: str | os.PathLike[str]) -> None:
    """Raise what writing a file at `path` would raise, before any work is done for it; nothing is left behind.

    Folders on the way that do not exist yet are taken for ones that will be made.

    Raises:
        OSError: A folder stands there, a file stands in the way, or the folder cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(target))
    folder = target.absolute().parent
    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        # Without a name, where the system can do that: a kill leaves nothing behind.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = os.fspath(target)
        raise


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


def explain(error: OSError) -> str:
    """What the system refused, in one sentence: the path, the reason, and what to do."""
    if error.errno is None or not error.strerror:
        return str(error) or type(error).__name__
    reason = error.strerror[0].lower() + error.strerror[1:]
    advice = _ADVICE.get(error.errno, "check the path and try again")
    path = error.filename2 or error.filename
    if path is None or isinstance(path, int):  # a descriptor says nothing to a reader
        return f"the system refused ({reason}); {advice}"
    return f"{_as_named(os.fsdecode(path))!r} cannot be used ({reason}); {advice}"


def _as_named(path: str) -> str:
    """The path that was asked for, where what failed is a hidden name beside or inside it."""
    path = re.sub(r"/\.(staging|trash)-[^/]*$", "", path)
    return re.sub(r"(^|/)\.([^/]+)\.[0-9a-f]{8}\.part$", r"\1\2", path)
