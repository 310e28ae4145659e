"""What lies in a zoo's place and is no teacher is left alone, whatever is asked for under its name."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE
from preceptor.zoo.object_storage import CLAIM_FILE, ObjectStorage
from preceptor.zoo.staging import sweep
from tests.zoo.tampering import damage


def in_memory(name: str) -> tuple[Zoo, ObjectStorage]:
    """A zoo of its own in an object store, and that store."""
    zoo = Zoo(f"memory://{name}/zoo")
    assert isinstance(zoo.storage, ObjectStorage)
    return zoo, zoo.storage


def place(zoo: Zoo, path: str) -> None:
    """Put a user's own file into the zoo's place."""
    if isinstance(zoo.storage, ObjectStorage):
        zoo.storage.filesystem.pipe_file(f"{zoo.storage.root}/{path}", b"mine")
    else:
        target = Path(zoo.url) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"mine")


def files(zoo: Zoo) -> list[str]:
    """All files in the zoo's place."""
    if isinstance(zoo.storage, ObjectStorage):
        root = zoo.storage.root
        return sorted(path[len(root) + 1 :] for path in zoo.storage.filesystem.find(root))
    root = Path(zoo.url)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_removing_touches_nothing_but_teachers(any_zoo: Zoo) -> None:
    mine = ["README.md", "deep/er/card.json", "photos/1.jpg", "photos/holiday/2.jpg"]
    for path in mine:
        place(any_zoo, path)
    for name in ("photos", "README.md", "deep", "nothing"):
        with pytest.raises(PreceptorError, match=f"no teacher '{name}' in "):
            any_zoo.remove(name)
    assert files(any_zoo) == mine


@pytest.mark.parametrize(("name", "kind"), [("photos", "folder"), ("README.md", "file")])
def test_a_teacher_is_not_mixed_with_something_else(any_zoo: Zoo, run: Path, name: str, kind: str) -> None:
    place(any_zoo, "photos/1.jpg")
    place(any_zoo, "README.md")
    refusal = rf"a {kind} '{name}' that is no teacher \(it has no card.json\) stands in the way; choose another name"
    for call in (
        lambda: any_zoo.check_free(name),
        lambda: any_zoo.add(f"run:{run}", name=name),
        lambda: any_zoo.storage.commit(name, {CARD_FILE: b"{}"}),
    ):
        with pytest.raises(PreceptorError, match=refusal):
            call()
    assert files(any_zoo) == ["README.md", "photos/1.jpg"]
    any_zoo.add(f"run:{run}", name="a")
    any_zoo.remove("a")
    assert {"README.md", "photos/1.jpg"} <= set(files(any_zoo))


def test_a_teacher_with_a_broken_card_can_be_removed(any_zoo: Zoo, run: Path) -> None:
    any_zoo.add(f"run:{run}", name="a")
    damage(any_zoo, "a", CARD_FILE, b"{")
    any_zoo.remove("a")
    assert [file for file in files(any_zoo) if file.startswith("a/")] == []
    any_zoo.add(f"run:{run}", name="a")
    assert any_zoo.verify("a") == []


def test_removing_a_link_removes_the_link_alone(zoo: Zoo, run: Path, tmp_path: Path) -> None:
    Zoo(tmp_path / "other").add(f"run:{run}", name="a")
    root = Path(zoo.url)
    root.mkdir()
    (root / "a").symlink_to(tmp_path / "other" / "a")
    (root / "b").symlink_to(tmp_path / "nowhere")
    zoo.remove("a")
    assert Zoo(tmp_path / "other").verify("a") == []
    assert os.listdir(root) == ["b"]
    with pytest.raises(PreceptorError, match="a file 'b' that is no teacher"):
        zoo.add(f"run:{run}", name="b")


def test_what_a_killed_process_left_is_cleared_whatever_it_is(tmp_path: Path) -> None:
    (tmp_path / ".trash-elsewhere-1-file").write_text("x")
    (tmp_path / ".trash-elsewhere-1-link").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".trash-elsewhere-1-folder").mkdir()
    long_ago = time.time() - 10**6
    for path in tmp_path.iterdir():
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    (tmp_path / ".trash-elsewhere-1-young").write_text("x")
    sweep(tmp_path)
    assert os.listdir(tmp_path) == [".trash-elsewhere-1-young"]


def test_an_add_that_fails_in_an_object_store_leaves_no_object(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, storage = in_memory("failing")
    write = storage.filesystem.pipe_file

    def full(path: str, data: bytes, **options: object) -> None:
        if path.endswith(CARD_FILE):
            raise OSError(28, "No space left on device")
        write(path, data, **options)

    monkeypatch.setattr(storage.filesystem, "pipe_file", full)
    with pytest.raises(OSError, match="No space left"):
        zoo.add(f"run:{run}", name="a")
    assert files(zoo) == []


def test_a_removal_cut_off_in_an_object_store_can_be_finished(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, storage = in_memory("cutoff")
    delete = storage.filesystem.rm_file
    for allowed in range(4):  # card, weights, check, claim
        zoo.add(f"run:{run}", name="a")
        left = [allowed]

        def cut(path: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise SystemExit
            left[0] -= 1
            delete(path)

        with monkeypatch.context() as patch:
            patch.setattr(storage.filesystem, "rm_file", cut)
            with pytest.raises(SystemExit):
                zoo.remove("a")
        assert zoo.names() == ([] if allowed else ["a"])
        zoo.remove("a")
        assert files(zoo) == []


def test_half_a_teacher_under_a_stale_claim_is_in_nobodys_way(run: Path) -> None:
    zoo, storage = in_memory("stale")
    stale = json.dumps({"token": "x", "time": 0}).encode()
    storage.filesystem.pipe_file(f"{storage.root}/a/{CLAIM_FILE}", stale)
    storage.filesystem.pipe_file(f"{storage.root}/a/weights.safetensors", b"half")
    zoo.add(f"run:{run}", name="a")
    assert zoo.verify("a") == []


def test_a_folder_that_s3fs_names_for_a_claim_in_the_same_moment_is_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds nothing, asks once more for a file of that name, and is told of the folder made in between."""
    zoo, storage = in_memory("moment")
    monkeypatch.setattr(
        storage.filesystem, "find", lambda path, **_: {path: {"type": "directory"}}, raising=False
    )
    zoo.check_free("a")
