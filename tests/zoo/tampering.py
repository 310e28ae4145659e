"""Changes to a stored teacher behind the zoo's back."""

from __future__ import annotations

import hashlib
import json

from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE
from preceptor.zoo.object_storage import ObjectStorage


def damage(zoo: Zoo, name: str, file: str, data: bytes | None) -> None:
    """Overwrite a stored file, or delete it where no data come."""
    storage = zoo.storage
    if isinstance(storage, ObjectStorage):
        path = f"{storage.root}/{name}/{file}"
        storage.filesystem.rm_file(path) if data is None else storage.filesystem.pipe_file(path, data)
    else:
        path = storage.root / name / file
        path.unlink() if data is None else path.write_bytes(data)


def altered(zoo: Zoo, files: dict[str, bytes], **changes: object) -> None:
    """Store teacher ``a`` as ``x`` with other files, and a card that is altered but has the right sums."""
    card = json.loads(zoo.storage.read("a", CARD_FILE, 10**6))
    card |= {"name": "x", **changes}
    stored = {name: zoo.storage.read("a", name, 10**9) for name in card["files"]} | files
    card["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in stored.items()
    }
    zoo.storage.commit("x", {**stored, CARD_FILE: json.dumps(card).encode()})
