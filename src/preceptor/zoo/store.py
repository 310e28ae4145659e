"""The zoo: a repository of teachers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preceptor.core import PreceptorError
from preceptor.files import explain, local_path
from preceptor.wording import hint
from preceptor.zoo.card import CARD_FILE, Card, read_card
from preceptor.zoo.limits import MAX_CARD_BYTES, MAX_FILE_BYTES
from preceptor.zoo.preprocessing import Preprocessing, as_preprocessing
from preceptor.zoo.storage import open_storage

if TYPE_CHECKING:
    from preceptor.data import Task
    from preceptor.zoo.teacher import Teacher


class Zoo:
    """A folder or URL with a card and weights for each teacher.

    Example:
        >>> zoo = Zoo("zoo/")
        >>> card = zoo.add("timm:test_resnet", name="noise", untrained=True, classes=["cat", "dog"])
        >>> zoo.load("noise").classes
        ('cat', 'dog')
    """

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)
        self.storage = open_storage(self.url)

    def __repr__(self) -> str:
        return f"Zoo({self.url!r})"

    def __len__(self) -> int:
        return len(self.storage.stamps())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.storage.stamps()

    def add(
        self,
        source: str,
        *,
        name: str,
        classes: Sequence[str] | str | None = None,
        weights: str | Path | None = None,
        preprocessing: Preprocessing | dict[str, Any] | None = None,
        centers: Any = None,
        centers_from: Task | str | os.PathLike[str] | None = None,
        accuracy: float | None = None,
        licence: str | None = None,
        untrained: bool = False,
        linear_head: bool = False,
        trust_code: bool = False,
        device: str = "auto",
    ) -> Card:
        """Add a teacher, whole or not at all.

        Args:
            source: ``timm:NAME``, ``torchvision:NAME``, ``hf:FOLDER`` or ``hf:ORG/NAME``, ``onnx:FILE``,
                ``run:RUN`` or ``python:module:factory``.
            name: Its name in this zoo.
            classes: Class names in the order of the outputs, or ``"imagenet-1k"``, where the source does not
                know them.
            weights: A ``.safetensors`` or ``.pth`` file, where the weights lie apart.
            preprocessing: How images become inputs, where the source does not know or is to be overruled.
            centers: ``(C_T, d)`` class centres from elsewhere.
            centers_from: A `Task` with samples of all the teacher's classes, or what one is made from (a folder,
                an ``.npz``, ``glyphs:letters``, …); their mean features become the centres.
            accuracy: On its own test set, between 0 and 1.
            licence: Of the weights.
            untrained: Take random weights on purpose; the card says so.
            linear_head: Leave out what comes after the last linear layer (SqueezeNet's ReLU, a softmax),
                which is refused otherwise; the card says so.
            trust_code: Let a ``python:`` source run its code.
            device: Where to compute the centres; ``auto`` is a GPU where there is one.
        """
        from preceptor.zoo import adding
        from preceptor.zoo.users_code import code_of

        if centers is not None and centers_from is not None:
            raise PreceptorError("centers and centers_from came together; give one of them")
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise PreceptorError(f"accuracy {accuracy} came; expected a share from 0 to 1: 90 % is 0.9")
        self.check_free(name)
        request = adding.parse_source(
            source,
            weights=None if weights is None else local_path(weights),
            classes=adding.as_classes(classes),
            preprocessing=as_preprocessing(preprocessing),
            untrained=untrained,
            linear_head=linear_head,
            trust_code=trust_code,
        )
        task = adding.as_task(centers_from)
        with code_of(request):
            prepared = adding.prepare(
                request,
                name=name,
                centers=adding.as_tensor(centers),
                centers_from=task,
                accuracy=accuracy,
                licence=licence,
                device=device,
            )
        self.commit(prepared.card, prepared.files)
        return prepared.card

    def check_free(self, name: str) -> None:
        """Refuse a name that cannot be given to a new teacher, or a zoo that cannot be written."""
        self.storage.check_writable(name)

    def commit(self, card: Card, files: dict[str, bytes]) -> None:
        """Store a card and its files as one, then note it in the index."""
        text = card.model_dump_json(indent=1).encode()
        stamp = self.storage.commit(card.name, {**files, CARD_FILE: text})
        self.storage.append_index(json.dumps({"stamp": stamp, **summary(card)}))

    def exists(self) -> bool:
        """Whether there is a zoo at its URL, if only an empty one."""
        return self.storage.exists()

    def names(self) -> list[str]:
        """The names of all teachers, sorted."""
        return sorted(self.storage.stamps())

    def listing(self) -> list[dict[str, Any]]:
        """One short row for each teacher, by name; a broken card has a ``problem`` and nothing else.

        Rows come from the index where it is up to date; the rest are read from the cards and the index is
        written anew.
        """
        stamps = self.storage.stamps()
        known = _parse_index(self.storage.read_index())
        rows, changed = [], len(known) > len(stamps)
        for name in sorted(stamps):
            row = known.get(name)
            if row is None or row["stamp"] != stamps[name]:
                changed = True
                try:
                    row = {"stamp": stamps[name], **summary(self.card(name))}
                except PreceptorError as error:
                    if self.storage.stamp(name) is None:  # another process has removed it since
                        continue
                    row = {"stamp": None, "name": name, "problem": str(error)}
            rows.append(row)
        if changed and rows:
            self.storage.write_index(json.dumps(row) for row in rows if row["stamp"] is not None)
        return [{key: value for key, value in row.items() if key != "stamp"} for row in rows]

    def card(self, name: str) -> Card:
        """The card of one teacher."""
        try:
            return read_card(self.storage.read(name, CARD_FILE, MAX_CARD_BYTES), name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._unknown(name) from error
        except OSError as error:
            raise PreceptorError(explain(error)) from error

    def load(self, name: str, device: str = "cpu", trust_code: bool = False) -> Teacher:
        """A teacher ready to run, its files checked against their sums and its numbers against its card.

        A ``python:`` teacher has to repeat the forward pass recorded when it was added, for its code may have
        changed since.
        """
        from preceptor.devices import resolve_device
        from preceptor.zoo.loading import check_trust, load

        where = resolve_device(device)
        card = self.card(name)
        check_trust(card, trust_code)  # before weights are read that would be of no use
        return load(card, {file: self._file(card, file) for file in card.files}, trust_code).to(where)

    def verify(self, name: str, trust_code: bool = False, *, files_only: bool = False) -> list[str]:
        """What is wrong with a teacher, in words; empty when nothing is.

        Checks the card, the sum of every file, that the network loads, and that a forward pass gives the
        outputs recorded when it was added; with `files_only` the first two, which run nothing.
        """
        from preceptor.zoo.loading import differences, load

        try:
            card = self.card(name)
        except PreceptorError as error:
            return [str(error)]
        files, problems = {}, []
        for file in card.files:
            try:
                files[file] = self._file(card, file)
            except PreceptorError as error:
                problems.append(str(error))
        if problems or files_only:
            return problems
        try:
            return differences(load(card, files, trust_code), files)
        except PreceptorError as error:
            return [str(error)]

    def remove(self, name: str) -> None:
        """Remove a teacher, or what a killed process left under its name in an object store."""
        if not self.storage.remove(name):
            raise self._unknown(name)

    def _file(self, card: Card, file: str) -> bytes:
        """A teacher's file with the size and the sum that its card demands."""
        record = card.files[file]
        try:
            data = self.storage.read(card.name, file, MAX_FILE_BYTES)
        except FileNotFoundError as error:
            raise PreceptorError(
                f"{card.name}/{file} is missing; remove the teacher and add it again"
            ) from error
        if len(data) != record.size or hashlib.sha256(data).hexdigest() != record.sha256:
            raise PreceptorError(
                f"{card.name}/{file} is not the file that was added (its sum differs); "
                "remove the teacher and add it again"
            )
        return data

    def _unknown(self, name: str) -> PreceptorError:
        near = hint(name, self.names(), f"`preceptor zoo list {self.url}` shows what there is")
        return PreceptorError(f"no teacher {name!r} in {self.url}; {near}")


def load_teacher(path: str | Path, device: str = "cpu", trust_code: bool = False) -> Teacher:
    """The teacher at ``ZOO/NAME``, as the command line writes it."""
    url, _, name = str(path).rstrip("/").rpartition("/")
    if not url or url.endswith(":/") or not name:
        raise PreceptorError(f"{str(path)!r} names no teacher; write ZOO/NAME")
    return Zoo(url).load(name, device=device, trust_code=trust_code)


def summary(card: Card) -> dict[str, Any]:
    """What a listing shows of a card."""
    return {
        "name": card.name,
        "source": f"{card.source.kind}:{card.source.reference}",
        "classes": len(card.classes),
        "feature_size": card.feature_size,
        "parameters": card.parameters,
        "input_size": list(card.preprocessing.input_size),
        "accuracy": card.accuracy,
        "centers": card.centers_source,
        "trained": card.trained,
        "bytes": sum(record.size for record in card.files.values()),
        "created": card.created.isoformat(),
    }


def _parse_index(data: bytes) -> dict[str, dict[str, Any]]:
    """Rows by name, the last one wins; torn or foreign lines are passed over, for the cards are the truth."""
    rows: dict[str, dict[str, Any]] = {}
    for line in data.splitlines():
        try:
            row = json.loads(line) if line else None
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("stamp"), list):
            rows[row["name"]] = row
    return rows
