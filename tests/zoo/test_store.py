"""The zoo keeps the same promises in a folder, in memory and on an S3 server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.models import build
from preceptor.zoo import Zoo, load_teacher
from preceptor.zoo.card import CARD_FILE, Card
from preceptor.zoo.object_storage import CLAIM_FILE, ObjectStorage
from preceptor.zoo.weights import parse_safetensors, to_safetensors
from tests.zoo.conftest import CLASSES, make_run


def damage(zoo: Zoo, name: str, file: str, data: bytes | None) -> None:
    """Overwrite or delete a stored file behind the zoo's back."""
    storage = zoo.storage
    if isinstance(storage, ObjectStorage):
        path = f"{storage.root}/{name}/{file}"
        storage.filesystem.rm_file(path) if data is None else storage.filesystem.pipe_file(path, data)
    else:
        path = storage.root / name / file
        path.unlink() if data is None else path.write_bytes(data)


def test_add_list_show_load_verify_remove(any_zoo: Zoo, run: Path, images: torch.Tensor) -> None:
    assert any_zoo.names() == []
    assert any_zoo.listing() == []
    card = any_zoo.add(f"run:{run}", name="first", accuracy=0.5, licence="mit")
    assert any_zoo.names() == ["first"]
    assert any_zoo.card("first") == card
    assert any_zoo.cards() == [card]
    teacher = any_zoo.load("first")
    expected = build("cnn-4", 3, (3, 16, 16), seed=0).eval().outputs(images)
    output = teacher.outputs(images)
    torch.testing.assert_close(output.logits, expected.logits.detach())
    torch.testing.assert_close(output.features, expected.features.detach())
    assert any_zoo.verify("first") == []
    (row,) = any_zoo.listing()
    assert (row["name"], row["classes"], row["accuracy"], row["centers"]) == ("first", 3, 0.5, "classifier")
    any_zoo.remove("first")
    assert any_zoo.names() == []
    assert any_zoo.listing() == []
    with pytest.raises(PreceptorError, match="no teacher 'first'"):
        any_zoo.remove("first")


def test_a_name_is_taken_once(any_zoo: Zoo, run: Path, tmp_path: Path) -> None:
    before = any_zoo.add(f"run:{run}", name="a")
    other = make_run(tmp_path / "other", seed=1)
    with pytest.raises(PreceptorError, match="has a teacher 'a' already"):
        any_zoo.add(f"run:{other}", name="a")
    assert any_zoo.card("a") == before
    with pytest.raises(PreceptorError, match="has a teacher 'a' already"):
        any_zoo.storage.commit("a", {CARD_FILE: b"{}"})
    assert any_zoo.verify("a") == []


def test_listing_follows_every_change_with_and_without_its_index(any_zoo: Zoo, run: Path) -> None:
    any_zoo.add(f"run:{run}", name="b")
    any_zoo.add(f"run:{run}", name="a")
    rows = any_zoo.listing()
    assert [row["name"] for row in rows] == ["a", "b"]
    any_zoo.storage.write_index(
        ["{torn", "[]", '{"name": "ghost", "stamp": [1]}', json.dumps({"name": "a", "stamp": []})]
    )
    assert any_zoo.listing() == rows
    any_zoo.remove("a")
    assert [row["name"] for row in any_zoo.listing()] == ["b"]
    changed = any_zoo.card("b").model_copy(update={"accuracy": 0.25})
    damage(any_zoo, "b", CARD_FILE, changed.model_dump_json().encode())
    assert any_zoo.listing()[0]["accuracy"] == 0.25


def test_listing_reads_no_card_twice(any_zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    any_zoo.add(f"run:{run}", name="a")
    rows = any_zoo.listing()
    monkeypatch.setattr(Zoo, "card", lambda *_: pytest.fail("a card was read"))
    assert any_zoo.listing() == rows


def test_verify_finds_every_kind_of_damage(any_zoo: Zoo, run: Path) -> None:
    card = any_zoo.add(f"run:{run}", name="a")
    data = any_zoo.storage.read("a", "weights.safetensors", 10**9)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    damage(any_zoo, "a", "weights.safetensors", flipped)
    assert any_zoo.verify("a") == [
        "a/weights.safetensors is not the file that was added (its sum differs); "
        "remove the teacher and add it again"
    ]
    with pytest.raises(PreceptorError, match="its sum differs"):
        any_zoo.load("a")
    damage(any_zoo, "a", "weights.safetensors", None)
    assert "a/weights.safetensors is missing" in any_zoo.verify("a")[0]
    damage(any_zoo, "a", CARD_FILE, b'{"schema_version": 1}')
    assert "the card of 'a' is not valid at name" in any_zoo.verify("a")[0]
    assert any_zoo.listing() == [{"name": "a", "problem": any_zoo.verify("a")[0]}]
    damage(any_zoo, "a", CARD_FILE, card.model_copy(update={"name": "b"}).model_dump_json().encode())
    assert "the card in folder 'a' is for 'b'" in any_zoo.verify("a")[0]


def altered(zoo: Zoo, files: dict[str, bytes], **changes: object) -> None:
    """Store teacher ``x`` with an altered card whose sums are right."""
    card = json.loads(zoo.storage.read("a", CARD_FILE, 10**6))
    card |= {"name": "x", **changes}
    stored = {name: zoo.storage.read("a", name, 10**9) for name in card["files"]} | files
    card["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in stored.items()
    }
    zoo.storage.commit("x", {**stored, CARD_FILE: json.dumps(card).encode()})


def test_verify_compares_a_forward_pass_with_the_recorded_one(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    state = parse_safetensors(zoo.storage.read("a", "weights.safetensors", 10**9), "w")
    state["classifier.bias"] += 0.1
    altered(zoo, {"weights.safetensors": to_safetensors(state)})
    (problem,) = zoo.verify("x")
    assert "its logits are not those recorded when it was added: they differ by 0.1" in problem


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"classes": ["ant", "bee"]}, "does not fit run:run.*classifier.weight is"),
        ({"feature_size": 7}, "says 3 classes and 7 features, its weights have 3 and 16"),
        ({"centers_source": "stored"}, "names no centers.safetensors"),
        ({"schema_version": 2}, "not valid at schema_version"),
        ({"surprise": 1}, "not valid at surprise"),
        ({"classes": ["ant", "bee", "bee"]}, "'bee' comes twice"),
        ({"classes": []}, "0 classes came"),
        ({"head": {"path": "conv", "reduction": "none"}}, "names layer 'conv'"),
        ({"accuracy": 1.5}, "not valid at accuracy"),
    ],
)
def test_a_card_that_does_not_fit_its_weights_is_refused(
    zoo: Zoo, run: Path, changes: dict, reason: str
) -> None:
    zoo.add(f"run:{run}", name="a")
    altered(zoo, {}, **changes)
    with pytest.raises(PreceptorError, match=reason):
        zoo.load("x")
    assert zoo.verify("x") != []


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "/a",
        "a\\b",
        ".hidden",
        "a..b",
        "a\0b",
        "x" * 200,
        "a.",
        "index.jsonl",
        "a b",
        "a\n",
    ],
)
def test_names_that_would_leave_the_zoo_are_refused(any_zoo: Zoo, run: Path, name: str) -> None:
    for call in (
        lambda: any_zoo.add(f"run:{run}", name=name),
        lambda: any_zoo.card(name),
        lambda: any_zoo.load(name),
        lambda: any_zoo.remove(name),
    ):
        with pytest.raises(PreceptorError, match="cannot be a teacher's name"):
            call()


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd", "sub/file", ".claim", "card.json"])
def test_a_card_cannot_point_out_of_its_folder(zoo: Zoo, run: Path, file: str) -> None:
    card = json.loads(zoo.add(f"run:{run}", name="a").model_dump_json())
    card["files"][file] = card["files"]["weights.safetensors"]
    damage(zoo, "a", CARD_FILE, json.dumps(card).encode())
    with pytest.raises(PreceptorError, match="not valid at files"):
        zoo.load("a")


def test_a_teacher_without_a_card_does_not_exist(any_zoo: Zoo, run: Path) -> None:
    any_zoo.add(f"run:{run}", name="a")
    damage(any_zoo, "a", CARD_FILE, None)
    assert any_zoo.names() == []
    with pytest.raises(PreceptorError, match="no teacher 'a'"):
        any_zoo.load("a")
    any_zoo.remove("a")
    any_zoo.add(f"run:{run}", name="a")
    assert any_zoo.verify("a") == []


def test_a_failed_add_leaves_nothing(any_zoo: Zoo, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(dict):
        def items(self):  # type: ignore[no-untyped-def]
            yield "weights.safetensors", b"half"
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        any_zoo.storage.commit("a", Full())
    assert any_zoo.names() == []
    any_zoo.add(f"run:{run}", name="a")
    assert any_zoo.verify("a") == []


def test_threads_adding_at_once_lose_nothing(any_zoo: Zoo, run: Path) -> None:
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            Zoo(any_zoo.url).add(f"run:{run}", name=f"t{number}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert any_zoo.names() == ["t0", "t1", "t2", "t3"]
    assert [row["name"] for row in any_zoo.listing()] == any_zoo.names()
    assert all(any_zoo.verify(name) == [] for name in any_zoo.names())


def test_one_name_added_by_many_at_once_is_one_of_them_whole(any_zoo: Zoo, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"r{n}", seed=n) for n in range(3)]
    outcomes: list[str] = []

    def work(run: Path) -> None:
        try:
            Zoo(any_zoo.url).add(f"run:{run}", name="same")
            outcomes.append("added")
        except PreceptorError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("added") == 1
    assert all("already" in o or "another process is adding" in o for o in outcomes if o != "added")
    assert any_zoo.verify("same") == []


def test_an_object_store_keeps_a_claimed_name_for_its_claimer(run: Path) -> None:
    zoo = Zoo("memory://claims/zoo")
    storage = zoo.storage
    assert isinstance(storage, ObjectStorage)
    path = f"{storage.root}/a/{CLAIM_FILE}"
    storage.filesystem.pipe_file(path, json.dumps({"token": "x", "time": time.time()}).encode())
    with pytest.raises(PreceptorError, match=r"another process is adding 'a'.*remove 'a' first"):
        zoo.add(f"run:{run}", name="a")
    zoo.remove("a")
    zoo.add(f"run:{run}", name="a")
    storage.filesystem.pipe_file(
        f"{storage.root}/b/{CLAIM_FILE}", json.dumps({"token": "x", "time": 0}).encode()
    )
    zoo.add(f"run:{run}", name="b")
    assert zoo.names() == ["a", "b"]


def test_an_object_store_cut_off_after_any_write_shows_all_or_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a killed process had written: no half teacher, and removing clears the way."""
    zoo = Zoo("memory://cut/zoo")
    filesystem = zoo.storage.filesystem  # type: ignore[attr-defined]
    write, delete = filesystem.pipe_file, filesystem.rm_file
    seen = set()
    for allowed in range(10):
        left = [allowed]

        def one(action: Any, *args: Any, left: list[int] = left, **options: Any) -> None:
            if left[0] == 0:
                raise SystemExit
            left[0] -= 1
            action(*args, **options)

        monkeypatch.setattr(filesystem, "pipe_file", partial(one, write))
        monkeypatch.setattr(filesystem, "rm_file", partial(one, delete))
        with contextlib.suppress(SystemExit):
            zoo.add(f"run:{run}", name="a")
        monkeypatch.undo()
        seen.add(tuple(zoo.names()))
        assert zoo.names() in ([], ["a"])
        assert [zoo.verify(name) for name in zoo.names()] == [[] for _ in zoo.names()]
        with contextlib.suppress(PreceptorError):
            zoo.remove("a")
        assert zoo.names() == []
    assert seen == {(), ("a",)}


def test_ten_thousand_cards_list_in_under_a_second(zoo: Zoo, run: Path) -> None:
    card = zoo.add(f"run:{run}", name="a")
    text = card.model_dump_json()
    for number in range(10_000):
        folder = zoo.storage.root / f"t{number:05}"  # type: ignore[attr-defined]
        folder.mkdir()
        (folder / CARD_FILE).write_text(text.replace('"name":"a"', f'"name":"t{number:05}"', 1))
    assert len(zoo.listing()) == 10_001  # writes the index
    began = time.perf_counter()
    rows = Zoo(zoo.url).listing()
    seconds = time.perf_counter() - began
    assert len(rows) == 10_001
    assert rows[-1]["name"] == "t09999"
    assert rows[-1]["classes"] == len(CLASSES)
    assert seconds < 1


def test_load_teacher_splits_at_the_last_slash(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    assert load_teacher(f"{zoo.url}/a").name == "a"
    assert load_teacher(f"{zoo.url}/a/").name == "a"
    with pytest.raises(PreceptorError, match=r"no teacher 'aa'.*did you mean a"):
        load_teacher(f"{zoo.url}/aa")
    for path in ("a", "", "s3://a", "/"):
        with pytest.raises(PreceptorError, match="names no teacher; write ZOO/NAME"):
            load_teacher(path)


def test_unknown_places_are_refused() -> None:
    with pytest.raises(
        PreceptorError, match=r"cannot be a zoo \(.*nonsense\); give a folder, or a URL such as s3://"
    ):
        Zoo("nonsense://bucket/zoo")
    with pytest.raises(PreceptorError, match="needs a folder or a URL"):
        Zoo("")


def test_centers_are_stored_and_their_source_is_visible(any_zoo: Zoo, run: Path) -> None:
    centers = torch.arange(48.0).reshape(3, 16)
    card = any_zoo.add(f"run:{run}", name="a", centers=centers)
    assert card.centers_source == "stored"
    torch.testing.assert_close(any_zoo.load("a").centers, centers)
    with pytest.raises(PreceptorError, match=r"centres of 'b' have shape \(2, 16\)"):
        any_zoo.add(f"run:{run}", name="b", centers=centers[:2])
    assert any_zoo.names() == ["a"]


def test_cards_survive_json(zoo: Zoo, run: Path) -> None:
    card = zoo.add(f"run:{run}", name="a")
    assert Card.model_validate_json(card.model_dump_json()) == card


def test_a_store_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores raise exceptions of their own, such as botocore's NoCredentialsError."""
    zoo = Zoo("memory://far/zoo")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Unable to locate credentials\nand much more")

    monkeypatch.setattr(type(zoo.storage.filesystem.filesystem), "exists", fail)  # type: ignore[attr-defined]
    with pytest.raises(
        PreceptorError, match=r"far/zoo cannot be reached \(Unable to locate credentials\); check"
    ):
        zoo.exists()
    zoo.storage = pickle.loads(pickle.dumps(zoo.storage))
    with pytest.raises(PreceptorError, match="cannot be reached"):
        zoo.exists()


def test_a_teacher_that_cannot_be_read_hides_no_other(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="good")
    folder = Path(zoo.url) / "looped"
    folder.mkdir()
    (folder / "card.json").symlink_to(folder / "card.json")
    bad, good = sorted(zoo.listing(), key=lambda row: "problem" not in row)
    assert good["name"] == "good"
    assert bad["name"] == "looped"
    assert "cannot be used" in bad["problem"]
    assert zoo.verify("looped") == [bad["problem"]]
