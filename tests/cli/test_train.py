from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

import preceptor.cli
from preceptor.cli.task import read_task
from preceptor.cli.train import distill, train
from preceptor.cli.use import export, predict
from preceptor.zoo import Zoo
from tests.distill.toys import toy_task


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the entry point with these commands alone; exit status, standard output, standard error."""
    app = typer.Typer(pretty_exceptions_enable=False)
    for name, function in (
        ("train", train),
        ("distill", distill),
        ("predict", predict),
        ("export", export),
    ):
        app.command(name)(function)
    monkeypatch.setattr(preceptor.cli, "app", app)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["preceptor", *map(str, arguments)])
        status = 0
        try:
            preceptor.cli.main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    task = toy_task()
    np.savez(
        tmp_path / "toy.npz",
        train_x=task.train.load(slice(None)).numpy(), train_y=task.train.labels,
        test_x=task.test.load(slice(None)).numpy(), test_y=task.test.labels, classes=np.array(task.classes),
    )  # fmt: skip
    return tmp_path / "toy.npz"


def test_the_whole_way(call, data: Path, tmp_path: Path) -> None:
    common = ("--epochs", 2, "--batch-size", 32, "--device", "cpu")
    status, out, _ = call(
        "train",
        data,
        "--arch",
        "cnn-4",
        "--out",
        tmp_path / "t",
        "--zoo",
        tmp_path / "zoo",
        "--name",
        "toy",
        *common,
    )
    assert status == 0
    assert "test accuracy" in out
    assert f"teacher: {tmp_path}/zoo/toy" in out
    status, out, err = call(
        "distill", data, "--teacher", f"{tmp_path}/zoo/toy", "--student", "cnn-2", "--out", tmp_path / "r",
        "-o", "weight=2.5", "-o", "centers=data", "--with-baseline", "--json", *common,
    )  # fmt: skip
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["method"] == "sinkhorn"
    assert found["baseline_accuracy"] is not None
    config = json.loads((tmp_path / "r/config.json").read_text())
    assert config["method_options"] == {"weight": 2.5, "centers": "data"}
    assert config["teacher"]["from"] == f"{tmp_path}/zoo/toy"
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "a.png")
    status, out, _ = call("predict", tmp_path / "r", tmp_path / "a.png", "--json")
    assert status == 0
    (said,) = json.loads(out)
    assert said["class"] in "abcd"
    status, out, _ = call("predict", tmp_path / "r", tmp_path / "a.png", "--top", 2)
    assert out.count("%") == 2
    status, out, _ = call("export", tmp_path / "r", tmp_path / "a.onnx")
    assert status == 0
    assert "opset 18, takes images (B, 1, 8, 8) in [0, 1], differs from torch by" in out


def test_a_wrong_call_is_2_and_a_failure_1_with_one_line(call, data: Path, tmp_path: Path) -> None:
    assert call("train", data)[0] == 2  # no --arch
    assert call("train", data, "--arch", "cnn-4", "--zoo", "z")[0] == 2
    assert call("distill", data, "--epochs", "many")[0] == 2
    status, out, err = call("distill", data, "--device", "cpu", "--out", tmp_path / "d")
    assert (status, out) == (1, "")
    assert (
        err == "preceptor: method sinkhorn needs a teacher and none was given; pass one or use method none\n"
    )
    status, _, err = call("distill", data, "--method", "none", "-o", "weight")
    assert status == 1
    assert "expected NAME=VALUE" in err
    status, _, err = call("predict", tmp_path, "a.png")
    assert status == 1
    assert "is no run" in err


def test_resume(call, data: Path, tmp_path: Path) -> None:
    line = ("train", data, "--arch", "cnn-2", "--out", tmp_path / "t", "--epochs", 1, "--device", "cpu")
    assert call(*line)[0] == 0
    status, _, err = call(*line)
    assert status == 1
    assert "already holds a run" in err
    assert call(*line, "--resume")[0] == 0
    status, _, err = call(*line, "--resume", "--lr", 0.5)
    assert status == 1
    assert "recipe.lr was 0.05 and is 0.5" in err


@pytest.mark.parametrize(
    "line", [("train", "--arch", "cnn-2"), ("distill", "--student", "cnn-2", "--method", "none")]
)
def test_that_nothing_will_be_kept_is_said_before_the_training(
    call, data: Path, tmp_path: Path, line
) -> None:
    sentence = "the trained model will not be kept: name a folder for it with --out"
    command = (line[0], data, *line[1:], "--epochs", 1, "--device", "cpu")
    status, out, err = call(*command, "--json")
    assert (status, err.splitlines()[0]) == (0, sentence)
    assert json.loads(out)["run"] is None
    assert sentence not in "".join(call(*command, "--out", tmp_path / "r")[1:])


def test_the_home_folder_and_late_registration_with_centres(
    call, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    line = ("train", data, "--arch", "cnn-2", "--out=~/t", "--epochs", 1, "--device", "cpu")
    assert call(*line)[0] == 0
    assert not (tmp_path / "~").exists()
    assert call(*line, "--resume", "--zoo", tmp_path / "zoo", "--name", "late")[0] == 0
    assert Zoo(tmp_path / "zoo").card("late").centers_source == "stored"


def test_a_broken_image_among_good_ones_stops_or_is_left_out_and_named(call, tmp_path: Path) -> None:
    for name in ("cat", "dog", "čeština", "x" * 120):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(4):
            pixels = np.full((8, 8, 3), 40 * index + len(name), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{index}.jpg")
    broken = tmp_path / "photos/cat/0.jpg"
    broken.write_bytes(broken.read_bytes()[:100])
    how = ("--arch", "cnn-2", "--epochs", 1, "--device", "cpu", "--json")
    line = ("train", tmp_path / "photos", *how, "--out")
    status, out, err = call(*line, tmp_path / "a")
    assert (status, out) == (1, "")
    assert err.endswith("--on-bad-image skip leaves such files out and names them\n")
    status, out, err = call(*line, tmp_path / "b", "--on-bad-image", "skip")
    assert status == 0
    assert err == "left out, cannot be read: cat/0.jpg\n"
    assert json.loads(out)["accuracy"] is not None


def test_training_images_in_the_test_part_are_told_of_once(call, data: Path, tmp_path: Path) -> None:
    content = dict(np.load(data))
    content["test_x"][:3] = content["train_x"][:3]
    np.savez(tmp_path / "leaky.npz", **content)
    line = ("--epochs", 1, "--device", "cpu", "--json", "--out")
    status, out, err = call("train", tmp_path / "leaky.npz", "--arch", "cnn-2", *line, tmp_path / "a")
    assert status == 0
    assert err.startswith("3 of the 40 test images (7.5 %) are in the training part as well")
    assert err.count("\n") == 1
    assert json.loads(out)["accuracy"] is not None
    line = ("--method", "none", "--student", "cnn-2", *line)
    assert call("distill", data, *line, tmp_path / "b")[2] == ""
    assert call("distill", tmp_path / "leaky.npz", *line, tmp_path / "c")[2] == err


def test_under_torchrun_only_the_first_process_speaks(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = dict(np.load(data))
    np.savez(data, **{**content, "test_x": content["train_x"], "test_y": content["train_y"]})
    for rank, tested, lines in (("1", True, 0), ("0", True, 1), ("0", False, 0)):
        monkeypatch.setenv("RANK", rank)
        read_task(str(data), None, None, "fail", tested=tested)
        assert capsys.readouterr().err.count("\n") == lines


def test_a_name_that_the_zoo_cannot_take_is_told_before_training(call, data: Path, tmp_path: Path) -> None:
    line = ("train", data, "--arch", "cnn-2", "--out", tmp_path / "t", "--zoo", tmp_path / "zoo")
    status, _, err = call(*line, "--name", "a/b")
    assert status == 1
    assert "cannot be a teacher's name" in err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("pair", ["weight=abc", "epsilon=0", "temperature=0", "epochs=x"])
def test_an_option_of_the_wrong_kind_is_one_line(call, data: Path, pair: str, tmp_path: Path) -> None:
    status, out, err = call("distill", data, "--method", "sinkhorn", "-o", pair, "--out", tmp_path / "d")
    assert (status, out) == (1, "")
    assert err.startswith(f"preceptor: {pair.partition('=')[0]} ")
    assert "expected" in err


def test_a_zoo_that_cannot_be_written_is_told_before_training(call, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "zoo/taken").mkdir(parents=True)
    line = ("train", data, "--arch", "cnn-2", "--out", tmp_path / "t", "--device", "cpu")
    status, _, err = call(*line, "--zoo", tmp_path / "file", "--name", "a")
    assert status == 1
    assert "a file stands where a folder is needed" in err
    status, _, err = call(*line, "--zoo", tmp_path / "zoo", "--name", "taken")
    assert status == 1
    assert "a folder 'taken' that is no teacher" in err
    assert not (tmp_path / "t").exists()
    assert sorted(path.name for path in (tmp_path / "zoo").iterdir()) == ["taken"]


def test_a_model_that_could_not_be_registered_is_not_lost(
    call, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "my zoo/.staging-1-2"))

    line = ("train", data, "--arch", "cnn-2", "--out", tmp_path / "t", "--epochs", 1, "--device", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr("preceptor.zoo.storage.LocalStorage.commit", full)
        status, _, err = call(*line, "--zoo", tmp_path / "my zoo", "--name", "a")
    assert status == 1
    assert f"the model is trained and lies in {tmp_path}/t" in err
    assert "no space left on device" in err
    command = err.strip().rpartition("then register it with: ")[2]
    assert shlex.split(command) == [
        "preceptor", "zoo", "add", f"{tmp_path}/my zoo", f"run:{tmp_path}/t", "--name", "a",
    ]  # fmt: skip
    Zoo(tmp_path / "my zoo").add(f"run:{tmp_path}/t", name="a")


def test_export_writes_onnx_under_a_name_that_says_so(call, tmp_path: Path) -> None:
    for name in ("m.pt", "m"):
        status, _, err = call("export", tmp_path / "nowhere", tmp_path / name)
        assert status == 1
        assert f"preceptor: {name} came and what is written is ONNX; name a file that ends in .onnx" in err


def test_settings_without_an_option_of_their_own_are_given_by_o(call, data: Path, tmp_path: Path) -> None:
    line = ("train", data, "--arch", "cnn-2", "--out", tmp_path / "t", "--epochs", 1, "--device", "cpu")
    status, _, err = call(*line, "-o", "momentum=0.5", "-o", "milestones=[0.5]", "-o", "nesterov=false")
    assert (status, err) == (0, "")
    recipe = json.loads((tmp_path / "t/config.json").read_text())["recipe"]
    assert (recipe["momentum"], recipe["milestones"], recipe["nesterov"]) == (0.5, [0.5], False)
    status, _, err = call(*line, "-o", "weight=3")
    assert status == 1
    assert "'weight' is neither a setting of a recipe nor an option of method none" in err


FACTORY = "from preceptor.models import build\ndef make(): return build('cnn-2', 4, (1, 8, 8), seed=0)\n"


def test_code_of_ones_own_is_run_where_it_is_trusted(
    call, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_teacher_for_train.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    source = "python:own_teacher_for_train:make"
    seen = {"input_size": [1, 8, 8], "mean": [0.5], "std": [0.5]}
    Zoo(tmp_path / "zoo").add(source, name="own", classes=list("abcd"), preprocessing=seen, trust_code=True)
    teacher, short = tmp_path / "zoo/own", ("--epochs", 1, "--device", "cpu")
    for name, *line in (
        ("a", "train", data, "--arch", "cnn-2", "--start-from", teacher),
        ("b", "distill", data, "--student", "cnn-2", "--teacher", teacher),
        ("c", "distill", data, "--student", "cnn-2", "--teacher", teacher, "--method", "sftn"),
    ):
        status, _, err = call(*line, *short, "--out", tmp_path / name)
        assert status == 1
        assert "--trust-code" in err
        assert call(*line, *short, "--out", tmp_path / name, "--trust-code")[0] == 0
