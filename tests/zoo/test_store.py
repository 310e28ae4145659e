"""The zoo keeps the same promises in a folder, in memory and on an S3 server."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.models import build
from preceptor.zoo import Zoo, load_teacher
from preceptor.zoo.card import CARD_FILE, Card
from tests.zoo.conftest import make_run, make_task
from tests.zoo.tampering import damage


def test_add_list_show_load_verify_remove(any_zoo: Zoo, run: Path, images: torch.Tensor) -> None:
    assert any_zoo.names() == []
    assert any_zoo.listing() == []
    card = any_zoo.add(f"run:{run}", name="first", accuracy=0.5, licence="mit")
    assert any_zoo.names() == ["first"]
    assert any_zoo.card("first") == card
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


@pytest.mark.parametrize("accuracy", [90.0, -0.1, float("nan")])
def test_an_accuracy_is_a_share(zoo: Zoo, run: Path, accuracy: float) -> None:
    with pytest.raises(
        PreceptorError, match=f"accuracy {accuracy} came; expected a share from 0 to 1: 90 % is 0.9"
    ):
        zoo.add(f"run:{run}", name="a", accuracy=accuracy)
    assert zoo.names() == []


def test_the_example_of_the_zoo_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestFinder(recurse=False).find(Zoo, "Zoo", globs={"Zoo": Zoo})
    outcome = [doctest.DocTestRunner().run(example) for example in examples]
    assert [(result.failed, result.attempted) for result in outcome] == [(0, 3)]


def test_devices_by_every_name(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a", device="auto", centers_from=make_task())
    assert zoo.load("a", device="auto").classifier.device.type in ("cpu", "cuda")
    with pytest.raises(
        PreceptorError, match="device 'gpu' is unknown; expected auto, cpu, cuda, cuda:N or mps"
    ):
        zoo.add(f"run:{run}", name="b", device="gpu")
    with pytest.raises(PreceptorError, match="device 'gpu' is unknown"):
        zoo.load("a", device="gpu")
    assert zoo.names() == ["a"]


def test_a_name_is_taken_once(any_zoo: Zoo, run: Path, tmp_path: Path) -> None:
    before = any_zoo.add(f"run:{run}", name="a")
    other = make_run(tmp_path / "other", seed=1)
    with pytest.raises(PreceptorError, match="has a teacher 'a' already"):
        any_zoo.add(f"run:{other}", name="a")
    assert any_zoo.card("a") == before
    with pytest.raises(PreceptorError, match="has a teacher 'a' already"):
        any_zoo.storage.commit("a", {CARD_FILE: b"{}"})
    assert any_zoo.verify("a") == []


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


def test_a_teacher_without_a_card_does_not_exist(any_zoo: Zoo, run: Path) -> None:
    any_zoo.add(f"run:{run}", name="a")
    damage(any_zoo, "a", CARD_FILE, None)
    assert any_zoo.names() == []
    with pytest.raises(PreceptorError, match="no teacher 'a'"):
        any_zoo.load("a")
    with pytest.raises(PreceptorError, match="no teacher 'a'"):
        any_zoo.remove("a")
    with pytest.raises(PreceptorError, match="a folder 'a' that is no teacher"):
        any_zoo.add(f"run:{run}", name="a")


def test_a_failed_add_leaves_nothing(any_zoo: Zoo, run: Path) -> None:
    class Full(dict):
        def items(self):  # type: ignore[no-untyped-def]
            yield "weights.safetensors", b"half"
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        any_zoo.storage.commit("a", Full())
    assert any_zoo.names() == []
    any_zoo.add(f"run:{run}", name="a")
    assert any_zoo.verify("a") == []


def test_a_zoo_is_a_collection_of_names(any_zoo: Zoo, run: Path) -> None:
    assert len(any_zoo) == 0
    for name in ("b", "a"):
        any_zoo.add(f"run:{run}", name=name)
    assert (len(any_zoo), list(any_zoo)) == (2, ["a", "b"])
    assert "a" in any_zoo
    assert "c" not in any_zoo
    assert "../zoo/a" not in any_zoo


def test_load_teacher_splits_at_the_last_slash(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    assert load_teacher(f"{zoo.url}/a").name == "a"
    assert load_teacher(f"{zoo.url}/a/").name == "a"
    with pytest.raises(PreceptorError, match=r"no teacher 'aa'.*did you mean 'a"):
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


def test_cards_survive_json(zoo: Zoo, run: Path) -> None:
    card = zoo.add(f"run:{run}", name="a")
    assert Card.model_validate_json(card.model_dump_json()) == card
