"""The zoo's commands: what they do, what they print, and how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from preceptor.cli.zoo import zoo_app
from preceptor.cli.zoo_options import parse_preprocessing, read_classes
from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from tests.zoo.conftest import CLASSES, make_run
from tests.zoo.onnx_models import export


def call(*arguments: object, fails: bool = False) -> Result:
    result = CliRunner().invoke(zoo_app, [str(argument) for argument in arguments])
    if not fails:
        assert result.exit_code == 0, result.output + repr(result.exception)
    return result


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "zoo"


@pytest.fixture
def run(zoo: Path) -> str:
    return f"run:{zoo.parent / 'run'}"


def test_add_list_show_verify_remove(zoo: Path, run: str) -> None:
    added = call("add", zoo, run, "--name", "first", "--accuracy", 0.5, "--licence", "mit")
    assert (
        "added first: 3 classes, 16 features, head 'classifier', centres from classifier rows" in added.output
    )
    listed = call("list", zoo).output
    assert "first" in listed
    assert "run:run" in listed
    assert "50.0%" in listed
    shown = call("show", zoo, "first").output
    for text in ("3: ant, bee, cat", "classifier rows", "sha256", "3x16x16", "mit", "[0.25, 0.25, 0.25]"):
        assert text in shown
    assert call("verify", zoo).output == "first: good\n"
    assert call("remove", zoo, "first").output == "removed first\n"
    assert "the zoo is empty" in call("list", zoo).output


def test_json(zoo: Path, run: str) -> None:
    card = json.loads(call("add", zoo, run, "--name", "a", "--json").output)
    assert card["classes"] == list(CLASSES)
    assert json.loads(call("show", zoo, "a", "--json").output) == card
    (row,) = json.loads(call("list", zoo, "--json").output)
    assert (row["name"], row["centers"], row["trained"]) == ("a", "classifier", True)
    assert json.loads(call("verify", zoo, "a", "--json").output) == {"a": []}
    assert json.loads(call("remove", zoo, "a", "--json").output) == {"removed": "a"}


def test_verify_exits_with_1_and_the_reason(zoo: Path, run: str) -> None:
    call("add", zoo, run, "--name", "a")
    call("add", zoo, run, "--name", "b")
    (zoo / "a" / "weights.safetensors").write_bytes(b"x")
    result = call("verify", zoo, fails=True)
    assert result.exit_code == 1
    assert "a: a/weights.safetensors is not the file that was added" in result.output
    assert "b: good" in result.output
    assert call("verify", zoo, "b").exit_code == 0
    (zoo / "a" / "card.json").write_text("{")
    assert "the card of 'a' is not valid" in call("list", zoo).output.replace("\n", " ")


def test_errors_are_one_sentence(zoo: Path, run: str) -> None:
    call("add", zoo, run, "--name", "a")
    for arguments, reason in (
        (("list", zoo / "typo"), "there is no zoo at"),
        (("show", zoo, "b"), "no teacher 'b'"),
        (("add", zoo, run, "--name", "a"), "already"),
        (("add", zoo, run, "--name", "../b"), "cannot be a teacher's name"),
        (("add", zoo, "timm:test_resnet", "--name", "b", "--mean", "0"), "needs both --mean and --std"),
    ):
        error = call(*arguments, fails=True).exception
        assert isinstance(error, PreceptorError)
        assert reason in str(error)
        assert "\n" not in str(error)
    assert call("add", zoo, run, fails=True).exit_code == 2


def test_centres_from_data(zoo: Path, run: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 3, 16, 16), dtype=np.uint8)
    labels = np.arange(9) % 3
    data = zoo.parent / "data.npz"
    np.savez(data, train_x=images, train_y=labels, test_x=images, test_y=labels, classes=np.array(CLASSES))
    assert "centres from data" in call("add", zoo, run, "--name", "a", "--centers-from", data).output
    assert (zoo / "a" / "centers.safetensors").exists()


def test_onnx_takes_its_input_size_from_the_graph(zoo: Path) -> None:
    export("gemm", zoo.parent / "m.onnx")
    source = f"onnx:{zoo.parent / 'm.onnx'}"
    call(
        "add", zoo, source, "--name", "o", "--classes", "ant,bee,cat", "--mean", "0.5", "--std", "0.1,0.2,0.3"
    )
    preprocessing = Zoo(zoo).card("o").preprocessing
    assert preprocessing.input_size == (3, 32, 32)
    assert preprocessing.mean == (0.5, 0.5, 0.5)
    assert preprocessing.std == (0.1, 0.2, 0.3)


def test_untrained_shows_everywhere(zoo: Path) -> None:
    options = ("--untrained", "--classes", "a,b", "--input-size", "3,32,32", "--mean", "0", "--std", "1")
    assert ", untrained" in call("add", zoo, "timm:test_resnet", "--name", "u", *options).output
    assert "u (untrained)" in call("list", zoo).output
    assert "timm:test_resnet (untrained)" in call("show", zoo, "u").output


def test_class_names(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("wild cat\n\n dog \n")
    (tmp_path / "c.json").write_text('["a, b", "c"]')
    (tmp_path / "bad.json").write_text('{"a": 1}')
    assert read_classes(None) is None
    assert read_classes("a, b,c") == ["a", "b", "c"]
    assert read_classes(str(tmp_path / "c.txt")) == ["wild cat", "dog"]
    assert read_classes(str(tmp_path / "c.json")) == ["a, b", "c"]
    assert read_classes("imagenet-1k") == "imagenet-1k"
    for text, reason in ((tmp_path / "bad.json", "no JSON list of names"), (tmp_path / "no.txt", "no file")):
        with pytest.raises(PreceptorError, match=reason):
            read_classes(str(text))


def test_preprocessing_options() -> None:
    nothing = (None,) * 6
    assert parse_preprocessing("timm:x", *nothing) is None
    values = parse_preprocessing("timm:x", "3x32x32", 36, None, "bicubic", "0.5", "1")
    assert values == {
        "input_size": [3, 32, 32], "mean": (0.5,) * 3, "std": (1.0,) * 3, "crop": "center", "resize": 36,
        "interpolation": "bicubic",
    }  # fmt: skip
    assert parse_preprocessing("run:x", "7", None, None, None, "0", "1") == {
        "input_size": [7], "mean": (0.0,) * 7, "std": (1.0,) * 7,
    }  # fmt: skip
    assert parse_preprocessing("run:x", "3,8,4", None, None, None, "0", "1")["crop"] == "squash"  # type: ignore[index]
    for arguments, reason in (
        ((None, None, None, None, "0", "1"), "needs --input-size"),
        (("3,4", None, None, None, "0", "1"), "needs --input-size"),
        (
            ("three", None, None, None, "0", "1"),
            "'three' is no list of whole numbers; write them as 3,224,224",
        ),
        (("3,8,8", 9, "squash", None, "0", "1"), "--resize goes with --crop center"),
    ):
        with pytest.raises(PreceptorError, match=reason):
            parse_preprocessing("timm:x", *arguments)


def test_a_narrow_terminal_shows_every_name_and_column_whole(
    zoo: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "letters-a-to-z"
    call("add", zoo, run, "--name", name)
    monkeypatch.setattr("preceptor.cli.zoo.terminal_width", lambda: 40)
    listed = call("list", zoo).output
    assert max(map(len, listed.splitlines())) <= 40
    for title in ("source", "classes", "features", "parameters", "input", "accuracy", "centres"):
        assert listed.count(title) == 1
    assert listed.count(name) == listed.count("name")


def test_class_names_may_have_commas() -> None:
    assert read_classes('"salt, pepper",oil') == ["salt, pepper", "oil"]


def test_a_zoo_that_takes_nothing_is_told_before_the_data_is_read(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preceptor.cli.zoo.read_task", lambda *_: pytest.fail("the data was read"))
    (tmp_path / "file").touch()
    result = call("add", tmp_path / "file", run, "--name", "a", "--centers-from", "data", fails=True)
    assert isinstance(result.exception, NotADirectoryError)
