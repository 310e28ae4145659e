"""Fine-tuning: what a student takes over from a teacher, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from preceptor.cli import app
from preceptor.core import PreceptorError
from preceptor.data.task import Task
from preceptor.distill.result import Result
from preceptor.distill.train import train
from preceptor.models import build
from preceptor.zoo import Preprocessing, Zoo
from tests.distill.toys import toy_task, vector_task
from tests.zoo.conftest import CLASSES
from tests.zoo.onnx_models import export

STILL = {"recipe": "quick", "epochs": 1, "lr": 0.0, "momentum": 0.0, "weight_decay": 0.0, "progress": False}


@pytest.fixture(scope="module")
def teacher() -> Result:
    return train(toy_task(), student="cnn-4", epochs=8, progress=False)


def parameters(result: Result) -> dict[str, torch.Tensor]:
    return dict(result.model.named_parameters())


def test_a_network_for_other_classes_keeps_all_but_its_classifier(teacher: Result) -> None:
    found = train(toy_task(classes="wxyz"), student="cnn-4", start_from=teacher, seed=5, **STILL)
    scratch = dict(build("cnn-4", 4, (1, 8, 8), seed=5).named_parameters())
    for name, value in parameters(found).items():
        wanted = scratch[name] if name.startswith("classifier") else parameters(teacher)[name]
        torch.testing.assert_close(value, wanted)


def test_with_the_same_classes_it_knows_them_from_the_start(teacher: Result) -> None:
    found = train(toy_task(), student="cnn-4", start_from=teacher, seed=5, **STILL)
    torch.testing.assert_close(
        parameters(found)["classifier.weight"], parameters(teacher)["classifier.weight"]
    )
    other_order = train(toy_task(classes="dcba"), student="cnn-4", start_from=teacher, seed=5, **STILL)
    assert not torch.equal(
        parameters(other_order)["classifier.weight"], parameters(teacher)["classifier.weight"]
    )


def test_inputs_are_normalised_as_the_teacher_saw_them(teacher: Result) -> None:
    darker = toy_task()
    pixels = darker.train.load(range(len(darker.train))) // 2
    labels = darker.train.labels
    task = Task.from_arrays(pixels.numpy(), labels, pixels.numpy(), labels, list("abcd"))
    assert train(task, student="cnn-4", **STILL).config["mean"] != teacher.config["mean"]
    found = train(task, student="cnn-4", start_from=teacher, **STILL)
    assert (found.config["mean"], found.config["std"]) == (teacher.config["mean"], teacher.config["std"])


def test_it_learns_more_than_from_scratch_where_labels_are_few(teacher: Result) -> None:
    few = toy_task(train=8, classes="abcd")
    how = {"student": "cnn-4", "recipe": "finetune", "epochs": 3, "batch_size": 8, "progress": False}
    assert train(few, start_from=teacher, **how).accuracy > train(few, **how).accuracy + 0.2


def test_another_architecture_and_other_channels_are_refused(teacher: Result) -> None:
    with pytest.raises(
        PreceptorError, match=r"cnn-6 cannot start from SmallCNN, which has no .* the architecture"
    ):
        train(toy_task(), student="cnn-6", start_from=teacher, **STILL)
    grey = toy_task().train
    pixels = grey.load(range(len(grey))).repeat(1, 3, 1, 1).numpy()
    colour = Task.from_arrays(pixels, grey.labels, pixels, grey.labels, list("abcd"))
    with pytest.raises(
        PreceptorError, match="trained on images of 1 channels and these are images of 3 channels"
    ):
        train(colour, student="cnn-4", start_from=teacher, **STILL)


def test_from_a_zoo_by_the_command_line(tmp_path: Path) -> None:
    data = "glyphs:digits?per_class=4&test_per_class=2"
    zoo, run = str(tmp_path / "zoo"), str(tmp_path / "run")
    quick = ["--recipe", "quick", "--epochs", "1"]
    letters = ["train", "glyphs:upper-A-M?per_class=4&test_per_class=2", "--arch", "cnn-4", "--out",
               str(tmp_path / "letters"), "--zoo", zoo, "--name", "letters", *quick]  # fmt: skip
    assert CliRunner().invoke(app, letters).exit_code == 0
    command = ["train", data, "--arch", "cnn-4", "--out", run, *quick]
    begun = CliRunner().invoke(app, [*command, "--start-from", f"{zoo}/letters"])
    assert begun.exit_code == 0, begun.output
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["start_from"]["name"] == "letters"
    again = CliRunner().invoke(app, [*command, "--resume"])
    assert isinstance(again.exception, PreceptorError)
    assert "start_from" in str(again.exception)


def test_an_onnx_graph_is_refused(tmp_path: Path) -> None:
    export("gemm", tmp_path / "m.onnx", "batch")
    zoo = Zoo(tmp_path / "zoo")
    zoo.add(
        f"onnx:{tmp_path / 'm.onnx'}",
        name="t",
        classes=CLASSES,
        preprocessing=Preprocessing.for_size((3, 32, 32)),
    )
    pixels = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8).numpy()
    task = Task.from_arrays(pixels, [0, 1] * 4, pixels, [0, 1] * 4, ["a", "b"])
    with pytest.raises(PreceptorError, match="is an ONNX graph, whose weights cannot be trained here"):
        train(task, student="cnn-4", start_from=f"{tmp_path}/zoo/t", **STILL)


def test_from_a_network_of_timm(tmp_path: Path) -> None:
    zoo = Zoo(tmp_path)
    zoo.add("timm:test_resnet", name="t", untrained=True)
    pixels = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8).numpy()
    labels = [0, 1] * 4
    task = Task.from_arrays(pixels, labels, pixels, labels, ["a", "b"])
    found = train(task, student="timm:test_resnet", start_from=f"{tmp_path}/t", **STILL)
    known = zoo.load("t").network.network.state_dict()
    own = found.model.state_dict()  # in timm's names
    assert own["fc.weight"].shape == (2, known["fc.weight"].shape[1])
    for name, value in found.model.named_parameters():
        if not name.startswith("classifier"):
            torch.testing.assert_close(value, known[name.removeprefix("backbone.")])


def test_other_kinds_of_inputs_and_other_sizes_are_told_apart(tmp_path: Path) -> None:
    clouds = train(vector_task(), student="mlp-4", **STILL)
    with pytest.raises(
        PreceptorError, match="trained on vectors of 6 numbers and these are images of 1 channels"
    ):
        train(toy_task(), student="cnn-4", start_from=clouds, **STILL)
    zoo = Zoo(tmp_path)
    zoo.add("timm:test_vit", name="t", untrained=True)
    pixels = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8).numpy()
    task = Task.from_arrays(pixels, [0, 1] * 4, pixels, [0, 1] * 4, ["a", "b"])
    with pytest.raises(
        PreceptorError,
        match=r"has no pos_embed of its shape; .* image size: image_size=160 \(--image-size 160\)",
    ):
        train(task, student="timm:test_vit", start_from=f"{tmp_path}/t", **STILL)
