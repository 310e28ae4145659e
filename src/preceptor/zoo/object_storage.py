"""A zoo in an object store, or in any other that fsspec can reach: memory, S3 and the like.

Such a store has neither locks nor renames. An add claims its name by a file that only one can create, renews the
claim before each of its files, and stops where another has taken the name over: it then deletes nothing that may be
the other's. A claim is taken over where it was not renewed for `CLAIM_SECONDS`, or by a removal. A file that is on
its way at that moment cannot be called back, for fsspec has no write that compares first: it may replace the other's
file of that name, whose sum then differs from the card's, which loading and `zoo verify` tell.
"""

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
        token = self._claim(name)
        if self.filesystem.exists(self._path(name, CARD_FILE)):
            self._release(name)
            raise exists_already(name)
        try:
            for file, data in sorted(files.items(), key=lambda item: item[0] == CARD_FILE):
                self._renew(name, token)
                self.filesystem.pipe_file(self._path(name, file), data)
            self._check_held(name, token)
        except BaseException:
            self._undo(name, token)
            raise
        self._release(name)

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
        token = secrets.token_hex(8)
        self._write_claim(name, token)  # for this may be cut off too
        self._delete(name)
        self._clear_late(name, token)
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
        data = "".join(f"{line}\n" for line in lines).encode()
        with contextlib.suppress(OSError):
            self.filesystem.pipe_file(f"{self.root}/{INDEX_FILE}", data)

    def append_index(self, line: str) -> None:
        """Objects cannot grow: the next listing writes the index anew."""

    def _path(self, name: str, file: str) -> str:
        return f"{self.root}/{check_name(name)}/{check_name(file)}"

    def _claim(self, name: str) -> str:
        """Reserve a name for this add, so that the files of two adds do not mix; returns what tells it apart."""
        token = secrets.token_hex(8)
        self._check_free(name)
        try:
            self._write_claim(name, token, mode="create")
        except FileExistsError as error:
            if not self._stale(name):
                raise PreceptorError(
                    f"another process is adding {name!r} to this zoo; if it was killed, remove {name!r} first"
                ) from error
            self._write_claim(name, token)
        if self._holder(name) != token:  # nobody's: gone with an add that came in the same moment
            raise PreceptorError(f"another process is adding {name!r} to this zoo; choose another name")
        return token

    def _renew(self, name: str, token: str) -> None:
        """Make a claim young again, while it is ours."""
        self._check_held(name, token)
        self._write_claim(name, token)

    def _check_held(self, name: str, token: str) -> None:
        """Stop where the name is no longer this add's."""
        if self._holder(name) != token:
            raise PreceptorError(
                f"another process removed {name!r} or took it over while it was being added; see whether the zoo has "
                "it now, and add it again where not"
            )

    def _release(self, name: str) -> None:
        """Give up a claim of ours."""
        with contextlib.suppress(FileNotFoundError):  # others may remove it at the same time
            self.filesystem.rm_file(self._claim_path(name))

    def _undo(self, name: str, token: str) -> None:
        """Delete what an add that failed has written, unless the name is another's by now."""
        holder = self._holder(name)
        if holder is None:
            self._clear_late(name, token)
        elif holder == token:
            self._delete(name)

    def _clear_late(self, name: str, token: str) -> None:
        """Delete the file that an add had on its way when its name was removed, unless the name is another's by now.

        The add looks for its claim after each file, the removal for files after it has given up its own claim:
        whichever of the two looks last finds it. Only a teacher that was added since has a card beside other files.
        """
        if not self._under(name):
            return
        with contextlib.suppress(FileExistsError):
            self._write_claim(name, token, mode="create")
            files = self._under(name).keys() - {CLAIM_FILE}
            if CARD_FILE in files and len(files) > 1:
                self._release(name)
            else:
                self._delete(name)

    def _claim_path(self, name: str) -> str:
        return f"{self.root}/{check_name(name)}/{CLAIM_FILE}"

    def _write_claim(self, name: str, token: str, **options: Any) -> None:
        claim = json.dumps({"token": token, "time": time.time()}).encode()
        self.filesystem.pipe_file(self._claim_path(name), claim, **options)

    def _read_claim(self, name: str) -> dict[str, Any] | None:
        """Token and time, empty where they cannot be read; None where there is no claim."""
        try:
            claim = json.loads(self.filesystem.cat_file(self._claim_path(name)))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return claim if isinstance(claim, dict) else {}

    def _holder(self, name: str) -> str | None:
        """Whose claim it is; None where there is none."""
        claim = self._read_claim(name)
        return None if claim is None else str(claim.get("token"))

    def _stale(self, name: str) -> bool:
        try:
            return time.time() - float((self._read_claim(name) or {})["time"]) > CLAIM_SECONDS
        except (ValueError, KeyError, TypeError):
            return True


def _object_stamp(info: Mapping[str, Any]) -> list[Any]:
    when = info.get("ETag") or info.get("LastModified") or info.get("mtime") or info.get("created")
    return [str(when), info.get("size")]
