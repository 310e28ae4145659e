"""What the training loop computes, writes and refuses."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.data.plan import epoch_order
from preceptor.distill import loop
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.saved_run import load_run
from preceptor.distill.train import train
from preceptor.ot import class_centers
from tests.distill.plain import Plain, assert_same_weights
from tests.distill.toys import toy_task, vector_task


def test_centres_are_the_class_means_of_the_students_features(tmp_path: Path) -> None:
    task = toy_task(train=90)  # batches that end in an uneven one
    train(task, student="cnn-4", epochs=1, out=tmp_path, write_centers=True, batch_size=16)
    saved = load_run(tmp_path)
    with torch.no_grad():
        features = saved.network.outputs(saved.normalise(task.train.load(np.arange(90)))).features
    expected = class_centers(features, torch.from_numpy(task.train.labels), 4)
    torch.testing.assert_close(load_file(tmp_path / "centers.safetensors")["centers"], expected)


def test_it_learns_and_writes_the_run_folder(tmp_path: Path) -> None:
    result = train(toy_task(), student="cnn-4", epochs=8, out=tmp_path / "run", write_centers=True)
    assert result.accuracy > 0.8
    files = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert files == {
        "config.json", "log.jsonl", "checkpoint", "model.safetensors", "result.json", "centers.safetensors"
    }  # fmt: skip
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["arch"] == "cnn-4"
    assert config["classes"] == list("abcd")
    assert config["input_shape"] == [1, 8, 8]
    pixels = toy_task().train.load(np.arange(96)).double() / 255
    assert config["mean"] == pytest.approx([pixels.mean().item()])
    assert config["std"] == pytest.approx([pixels.std(correction=0).item()])
    stored = json.loads((tmp_path / "run/result.json").read_text())
    assert (stored["accuracy"], stored["schema_version"]) == (result.accuracy, 1)
    assert sum(map(sum, stored["confusion"])) == 40
    assert stored["per_class_accuracy"].keys() == set("abcd")
    losses = [record["loss"] for record in RunFolder(tmp_path / "run").read_log()]
    assert len(losses) == 8
    assert losses[-1] < losses[0]


def test_the_callers_randomness_is_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(vector_task(), student="mlp-4", epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_a_seed_below_0_is_refused() -> None:
    with pytest.raises(PreceptorError, match="seed -1 came; expected a whole number of 0 or more"):
        train(toy_task(), student="cnn-2", epochs=1, seed=-1)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    one, two, other = (
        train(toy_task(), student="cnn-2", epochs=1, augment="pad-crop-flip", seed=s) for s in (0, 0, 1)
    )
    assert_same_weights(one.model, two.model, rtol=0, atol=0)
    assert not torch.equal(one.model.classifier.weight, other.model.classifier.weight)


def test_parts_of_a_batch_add_up_to_the_batch() -> None:
    # 90 samples in batches of 32: the last one is filled up with rows that do not count.
    settings = {"epochs": 2, "batch_size": 32, "mixup": 0.5, "label_smoothing": 0.1}
    whole = train(vector_task(train=90), student=Plain(), **settings)
    parts = train(vector_task(train=90), student=Plain(), accumulate=4, **settings)
    assert_same_weights(whole.model, parts.model, rtol=1e-4, atol=1e-6)


def test_a_ragged_end_counts_each_sample_once() -> None:
    """One epoch of plain gradient descent, written out."""
    task = vector_task(train=10)
    result = train(
        task, student=Plain(), epochs=1, batch_size=8, lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0,
        warmup_epochs=0.0, lr_schedule="constant",
    )  # fmt: skip
    vectors, labels = task.train.load(np.arange(10)), torch.as_tensor(task.train.labels)
    inputs = (vectors - vectors.mean(0)) / vectors.std(0, correction=0)
    order = torch.as_tensor(epoch_order(10, True, 0, 0))
    network = Plain()
    for rows in (order[:8], order[8:]):
        loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    assert_same_weights(network, result.model, rtol=1e-4, atol=1e-6)


class Stop(Exception):
    pass


def weight_after(steps: int, settings: dict[str, float]) -> Tensor:
    """The classifier's weight after so many steps of the training."""
    network, original = Plain(), loop.Loop._train_on

    def until(self: loop.Loop, *arguments: Any) -> None:
        if self.step == steps:
            raise Stop
        original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stop):
        patch.setattr(loop.Loop, "_train_on", until)
        train(vector_task(), student=network, **settings)
    return network.classifier.weight.detach().clone()


def test_moving_average() -> None:
    settings = {"epochs": 1, "batch_size": 32, "lr": 0.1, "warmup_epochs": 0.0}
    average = Plain().classifier.weight.detach().clone()
    for steps in (1, 2, 3):  # 96 samples are three
        average = 0.75 * average + 0.25 * weight_after(steps, settings)
    result = train(vector_task(), student=Plain(), ema=0.75, **settings)
    torch.testing.assert_close(result.model.classifier.weight.detach(), average, rtol=1e-4, atol=1e-6)


def test_bfloat16_and_clipping_and_adamw_train() -> None:
    result = train(
        toy_task(), student="cnn-4", recipe="adamw", epochs=6, lr=0.01, precision="bf16-mixed", clip=1.0
    )
    assert result.accuracy > 0.6


@pytest.mark.slow
def test_compiled_networks_train_the_same() -> None:
    plain = train(vector_task(), student=Plain(), epochs=2)
    compiled = train(vector_task(), student=Plain(), epochs=2, compile=True)
    assert_same_weights(plain.model, compiled.model, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sinkhorn"}, "method sinkhorn needs a teacher and none was given"),
        ({"teacher": Plain(64)}, "method none takes no teacher and one was given"),
        ({"with_baseline": True}, "method none is that already"),
        ({"graphs": True, "device": "cpu"}, "graphs needs a CUDA device"),
        ({"device": "gpu"}, "device 'gpu' is unknown; expected auto, cpu"),
        ({"student": nn.Linear(2, 2)}, r"student Linear has no outputs\(\)"),
        ({"student": Plain(64, 3)}, "the student has 3 outputs and the task 4 classes"),
        ({"teacher": nn.Linear(2, 2), "method": "sinkhorn"}, r"teacher Linear has no outputs\(\)"),
        ({"teacher": Plain(64), "method": "kd"}, "needs a teacher with the student's classes"),
        ({"teacher": Plain(64), "method": "kd", "teacher_classes": ["a"]}, "4 logits and 1 class name came"),
        ({"tensorboard": True}, "tensorboard files lie in the run folder"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(PreceptorError, match=message):
        train(toy_task(), **{"student": "cnn-2", "epochs": 1, **options})
