"""A zoo in an object store, or in any other that fsspec can reach: memory, S3 and the like."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from preceptor.core import PreceptorError
from preceptor.zoo.card import CARD_FILE, INDEX_FILE, check_name
from preceptor.zoo.limits import check_size
from preceptor.zoo.storage import Stamps, exists_already

CLAIM_SECONDS = 3600  # an unfinished add this old is dead: an object store cannot say which process runs
CLAIM_FILE = ".claim"


class ObjectStorage:
    """Folders that exist by their files alone; a teacher by its card."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root

    def exists(self) -> bool:
        """Whether anything lies there."""
        self.filesystem.invalidate_cache()
        return self.filesystem.exists(self.root)

    def stamps(self) -> Stamps:
        """Folders with a card."""
        self.filesystem.invalidate_cache()
        try:
            files = self.filesystem.find(self.root, maxdepth=2, detail=True)
        except FileNotFoundError:
            return {}
        found: Stamps = {}
        for path, info in files.items():
            parts = path[len(self.root) :].strip("/").split("/")
            if len(parts) == 2 and parts[1] == CARD_FILE and not parts[0].startswith("."):
                found[parts[0]] = _object_stamp(info)
        return found

    def stamp(self, name: str) -> list[Any] | None:
        """Tag or time, and size, of a card."""
        self.filesystem.invalidate_cache()
        try:
            return _object_stamp(self.filesystem.info(self._path(name, CARD_FILE)))
        except FileNotFoundError:
            return None

    def read(self, name: str, file: str, limit: int) -> bytes:
        """A file of a teacher; one that is too large is not read."""
        path = self._path(name, file)
        self.filesystem.invalidate_cache()
        check_size(f"{name}/{file}", self.filesystem.info(path)["size"], limit)
        return self.filesystem.cat_file(path)

    def commit(self, name: str, files: Mapping[str, bytes]) -> None:
        """Claim the name, write all files, and the card last: with it the teacher exists."""
        claim = self._claim(name)
        try:
            if self.filesystem.exists(self._path(name, CARD_FILE)):
                raise exists_already(name)
            for file, data in sorted(files.items(), key=lambda item: item[0] == CARD_FILE):
                self.filesystem.pipe_file(self._path(name, file), data)
        finally:
            self.filesystem.rm_file(claim)

    def check_writable(self, name: str) -> None:
        """Try with an empty object beside the teachers, which does not stay."""
        path = f"{self.root}/.writable-{secrets.token_hex(8)}"
        self.filesystem.pipe_file(path, b"")
        self.filesystem.rm_file(path)

    def remove(self, name: str) -> bool:
        """Delete the card first: without it the teacher does not exist."""
        folder = f"{self.root}/{check_name(name)}"
        self.filesystem.invalidate_cache()
        paths = self.filesystem.find(folder)
        for path in sorted(paths, key=lambda path: not path.endswith("/" + CARD_FILE)):
            self.filesystem.rm_file(path)
        return bool(paths)

    def read_index(self) -> bytes:
        """The index, empty where there is none."""
        try:
            return self.filesystem.cat_file(f"{self.root}/{INDEX_FILE}")
        except FileNotFoundError:
            return b""

    def write_index(self, lines: Iterable[str]) -> None:
        """Replace the index; a zoo that may only be read goes without."""
        try:
            data = "".join(f"{line}\n" for line in lines).encode()
            self.filesystem.pipe_file(f"{self.root}/{INDEX_FILE}", data)
        except PermissionError:
            return

    def append_index(self, line: str) -> None:
        """Objects cannot grow: the next listing writes the index anew."""

    def _path(self, name: str, file: str) -> str:
        return f"{self.root}/{check_name(name)}/{check_name(file)}"

    def _claim(self, name: str) -> str:
        """Reserve a name for this add, so that the files of two adds can never mix."""
        path = f"{self.root}/{check_name(name)}/{CLAIM_FILE}"
        token = json.dumps({"token": secrets.token_hex(8), "time": time.time()}).encode()
        self.filesystem.invalidate_cache()
        if self.filesystem.exists(self._path(name, CARD_FILE)):
            raise exists_already(name)
        try:
            self.filesystem.pipe_file(path, token, mode="create")
        except FileExistsError as error:
            if not self._stale(path):
                raise PreceptorError(
                    f"another process is adding {name!r} to this zoo; if it was killed, remove {name!r} first"
                ) from error
            self.filesystem.pipe_file(path, token)
        try:
            held = self.filesystem.cat_file(path)
        except FileNotFoundError:  # gone with an add that claimed the name in the same moment and has ended
            held = b""
        if held != token:
            raise PreceptorError(f"another process is adding {name!r} to this zoo; choose another name")
        return path

    def _stale(self, path: str) -> bool:
        try:
            return time.time() - float(json.loads(self.filesystem.cat_file(path))["time"]) > CLAIM_SECONDS
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return True


def _object_stamp(info: Mapping[str, Any]) -> list[Any]:
    when = info.get("ETag") or info.get("LastModified") or info.get("mtime") or info.get("created")
    return [str(when), info.get("size")]
