"""Where a zoo's files lie: a local folder, or any store that fsspec can reach.

Both kinds keep the same promise: a teacher is there with all its files or not at all. A folder is written
under a hidden name and renamed; an object store has no rename, so there the card is written last, and a
teacher without a card does not exist.
"""

from __future__ import annotations

import os
import shutil
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

    def commit(self, name: str, files: Mapping[str, bytes]) -> None:
        """Add a teacher with all its files, or nothing."""

    def check_writable(self, name: str) -> None:
        """Raise what `commit` would, where nothing can be written."""

    def remove(self, name: str) -> bool:
        """Remove a teacher, or the rest of one; False where there was nothing."""

    def read_index(self) -> bytes:
        """The index, empty where there is none."""

    def write_index(self, lines: Iterable[str]) -> None:
        """Replace the index."""

    def append_index(self, line: str) -> None:
        """Add a line to the index, where that is cheap."""


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

    def commit(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write everything under a hidden name, flush it, then rename."""
        target = self.root / check_name(name)
        if target.exists():
            raise exists_already(name)
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
            try:
                os.rename(staging, target)
            except OSError as error:
                if target.exists():
                    raise exists_already(name) from error
                raise
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        sync_folder(self.root)

    def check_writable(self, name: str) -> None:
        """Try with an empty file, which does not stay."""
        target = self.root / check_name(name)
        if target.exists():
            raise exists_already(name)
        check_can_write(target)

    def remove(self, name: str) -> bool:
        """Rename to a hidden name, then delete at leisure."""
        if not discard(self.root / check_name(name)):
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
        """Replace the index; a zoo that may only be read goes without."""
        try:
            with FileLock(self.root / ".lock", timeout=60):
                write_atomically(self.root / INDEX_FILE, "".join(f"{line}\n" for line in lines).encode())
        except PermissionError:
            return

    def append_index(self, line: str) -> None:
        """Add a line. It begins with a line break, so that a torn line before it spoils only itself."""
        with FileLock(self.root / ".lock", timeout=60), open(self.root / INDEX_FILE, "ab") as stream:
            stream.write(f"\n{line}\n".encode())
