"""A zoo in an object store, or in any other that fsspec can reach: memory, S3 and the like."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from preceptor.core import PreceptorError
from preceptor.zoo.card import CARD_FILE, INDEX_FILE, check_name
from preceptor.zoo.limits import check_size
from preceptor.zoo.storage import Stamps, exists_already, stands_in_the_way

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
        except (FileNotFoundError, NotADirectoryError):
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
        if self.filesystem.exists(self._path(name, CARD_FILE)):
            self.filesystem.rm_file(claim)
            raise exists_already(name)
        try:
            for file, data in sorted(files.items(), key=lambda item: item[0] == CARD_FILE):
                self.filesystem.pipe_file(self._path(name, file), data)
        except BaseException:
            self._delete(name)
            raise
        self.filesystem.rm_file(claim)

    def check_writable(self, name: str) -> None:
        """Try with an empty object beside the teachers, which does not stay."""
        self._check_free(name)
        path = f"{self.root}/.writable-{secrets.token_hex(8)}"
        self.filesystem.pipe_file(path, b"")
        self.filesystem.rm_file(path)

    def remove(self, name: str) -> bool:
        """Delete a teacher, or what an add or a removal that was killed left: there its claim lies.

        What has neither card nor claim is other people's.
        """
        if not self._under(name).keys() & {CARD_FILE, CLAIM_FILE}:
            return False
        self.filesystem.pipe_file(self._claim_path(name), _claim_token())  # for this may be cut off too
        self._delete(name)
        return True

    def _delete(self, name: str) -> None:
        """Delete what lies under a name: the card first, without which there is no teacher, and the claim last."""
        files = self._under(name)
        for file in sorted(files, key=lambda file: (file == CLAIM_FILE, file != CARD_FILE)):
            with contextlib.suppress(FileNotFoundError):  # others may remove it at the same time
                self.filesystem.rm_file(files[file])

    def _under(self, name: str) -> dict[str, str]:
        """Paths of all files under a name, by their place in its folder; "" where the name is a file's own."""
        folder = f"{self.root}/{check_name(name)}"
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        # s3fs names the folder itself where its first file comes between two questions.
        files = (path for path, info in found.items() if info.get("type") != "directory")
        return {path[len(folder) :].strip("/"): path for path in files}

    def _check_free(self, name: str) -> None:
        """Refuse a name under which a teacher or anything else stands, unless it is claimed by an add."""
        files = self._under(name)
        if CARD_FILE in files:
            raise exists_already(name)
        if files and CLAIM_FILE not in files:
            raise stands_in_the_way(name, "file" if "" in files else "folder")

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
        path, token = self._claim_path(name), _claim_token()
        self._check_free(name)
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

    def _claim_path(self, name: str) -> str:
        return f"{self.root}/{check_name(name)}/{CLAIM_FILE}"

    def _stale(self, path: str) -> bool:
        try:
            return time.time() - float(json.loads(self.filesystem.cat_file(path))["time"]) > CLAIM_SECONDS
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return True


def _claim_token() -> bytes:
    return json.dumps({"token": secrets.token_hex(8), "time": time.time()}).encode()


def _object_stamp(info: Mapping[str, Any]) -> list[Any]:
    when = info.get("ETag") or info.get("LastModified") or info.get("mtime") or info.get("created")
    return [str(when), info.get("size")]
