"""Where a zoo's files lie: a local folder, or any store that fsspec can reach.

Both kinds keep the same promise: a teacher is there with all its files or not at all. A folder is written
under a hidden name and renamed; an object store has no rename, so there the card is written last, and a
teacher without a card does not exist.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from preceptor.core import PreceptorError
from preceptor.files import check_can_write, sync_folder, write_atomically
from preceptor.zoo.card import CARD_FILE, INDEX_FILE, check_name
from preceptor.zoo.limits import check_size
from preceptor.zoo.staging import discard, hidden_path, sweep

Stamps = dict[str, list[Any]]  # teacher -> what changes when its card does


class Storage(Protocol):
    """What a zoo needs of the place it lies in."""

    def exists(self) -> bool:
        """Whether there is a zoo at all, if only an empty one."""

    def stamps(self) -> Stamps:
        """The teachers that are there, each with what changes when its card does."""

    def stamp(self, name: str) -> list[Any] | None:
        """The stamp of one teacher; None where there is none."""

    def read(self, name: str, file: str, limit: int) -> bytes:
        """A file of a teacher; FileNotFoundError where there is none."""

    def commit(self, name: str, files: Mapping[str, bytes]) -> list[Any] | None:
        """Add a teacher with all its files, or nothing; returns its stamp where the index can take a line."""

    def check_writable(self, name: str) -> None:
        """Raise what `commit` would, where the name is taken or nothing can be written."""

    def remove(self, name: str) -> bool:
        """Remove a teacher, or the rest of one; False, and nothing touched, where there is none."""

    def read_index(self) -> bytes:
        """The index, empty where there is none."""

    def write_index(self, lines: Iterable[str]) -> None:
        """Replace the index, where that is possible: it only saves time."""

    def append_index(self, line: str) -> None:
        """Add a line to the index, where that is cheap and possible."""


def open_storage(url: str) -> Storage:
    """The storage behind a path or an fsspec URL."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    from preceptor.zoo.object_storage import ObjectStorage
    from preceptor.zoo.reached import Reached

    if not url:
        raise PreceptorError("a zoo needs a folder or a URL, and an empty one came")
    try:
        filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise PreceptorError(
            f"{url!r} cannot be a zoo ({error}); give a folder, or a URL such as s3://bucket/zoo"
        ) from error
    if isinstance(filesystem, LocalFileSystem):
        return LocalStorage(Path(path))
    return ObjectStorage(Reached(filesystem, url), path.rstrip("/"))


def exists_already(name: str) -> PreceptorError:
    """The refusal to overwrite."""
    return PreceptorError(f"the zoo has a teacher {name!r} already; choose another name or remove it first")


def stands_in_the_way(name: str, kind: str) -> PreceptorError:
    """The refusal to mix a teacher with something else; `kind` is what stands there, a file or a folder."""
    return PreceptorError(
        f"a {kind} {name!r} that is no teacher (it has no {CARD_FILE}) stands in the way; choose another name, or "
        "move it out of the zoo"
    )


class LocalStorage:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def exists(self) -> bool:
        """Whether the folder is there."""
        return self.root.is_dir()

    def stamps(self) -> Stamps:
        """Folders with a card. Hidden ones are unfinished or being removed."""
        found: Stamps = {}
        try:
            names = [entry.name for entry in os.scandir(self.root) if not entry.name.startswith(".")]
        except FileNotFoundError:
            return found
        for name in names:
            stamp = self.stamp(name)
            if stamp is not None:
                found[name] = stamp
        return found

    def stamp(self, name: str) -> list[Any] | None:
        """Time, size and inode of a card; nothing of one that cannot be read."""
        try:
            status = os.stat(os.path.join(self.root, name, CARD_FILE))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # no permission, a link to itself: one such teacher must not hide the others
            return []
        return [status.st_mtime_ns, status.st_size, status.st_ino]

    def read(self, name: str, file: str, limit: int) -> bytes:
        """A file of a teacher; one that is too large is not read."""
        path = self.root / check_name(name) / check_name(file)
        with open(path, "rb") as stream:
            check_size(f"{name}/{file}", os.fstat(stream.fileno()).st_size, limit)
            return stream.read()

    def commit(self, name: str, files: Mapping[str, bytes]) -> list[Any] | None:
        """Write everything under a hidden name, flush it, then rename."""
        self._check_free(name)
        target = self.root / name
        self.root.mkdir(parents=True, exist_ok=True)
        sweep(self.root)
        staging = hidden_path(self.root, "staging")
        staging.mkdir()
        try:
            for file, data in files.items():
                with open(staging / check_name(file), "xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            sync_folder(staging)
            stamp = self.stamp(staging.name)  # later another process may have put its own in this one's place
            try:
                os.rename(staging, target)
            except OSError:
                self._check_free(name)  # another process may have come first
                raise
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        sync_folder(self.root)
        return stamp

    def check_writable(self, name: str) -> None:
        """Try with an empty file, which does not stay."""
        self._check_free(name)
        try:
            check_can_write(self.root / name)
        except IsADirectoryError:
            self._check_free(name)  # another process may have come since
            raise

    def _check_free(self, name: str) -> None:
        """Refuse a name under which something stands, be it a link that leads nowhere."""
        target = self.root / check_name(name)
        if not os.path.lexists(
            target
        ):  # asked first, for a teacher may come between two questions, card and all
            return
        if self.stamp(name) is not None:
            raise exists_already(name)
        if os.path.lexists(target):  # and asked again, for one may go
            raise stands_in_the_way(name, "folder" if target.is_dir() else "file")

    def remove(self, name: str) -> bool:
        """Rename to a hidden name, then delete at leisure. Other people's folders and files are left alone."""
        folder = self.root / check_name(name)
        try:
            card = os.lstat(folder / CARD_FILE)  # a broken card will do: the teacher has to go somehow
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISDIR(card.st_mode) or not discard(folder):
            return False
        sync_folder(self.root)
        return True

    def read_index(self) -> bytes:
        """The index, empty where there is none."""
        try:
            return (self.root / INDEX_FILE).read_bytes()
        except FileNotFoundError:
            return b""

    def write_index(self, lines: Iterable[str]) -> None:
        """Replace the index; a zoo that may only be read, or on a full disk, goes without."""
        with contextlib.suppress(OSError), FileLock(self.root / ".lock", timeout=60):
            write_atomically(self.root / INDEX_FILE, "".join(f"{line}\n" for line in lines).encode())

    def append_index(self, line: str) -> None:
        """Add a line. It begins with a line break, so that a torn line before it spoils only itself.

        The teacher is there by then, so a disk that is full is no failure.
        """
        with contextlib.suppress(OSError), FileLock(self.root / ".lock", timeout=60):
            with open(self.root / INDEX_FILE, "ab") as stream:
                stream.write(f"\n{line}\n".encode())
