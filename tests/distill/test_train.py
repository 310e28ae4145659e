from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import rich.console
import torch
from torch import Tensor, nn

from preceptor import distill
from preceptor.core import ModelOutput, PreceptorError
from preceptor.data.split import Split
from preceptor.data.task import Task
from preceptor.distill import monitor
from preceptor.distill.losses import Context, Method, Step
from preceptor.distill.losses.method import task_loss
from preceptor.distill.result import Result, baseline_note
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.toys import toy_task, vector_task


class Plain(nn.Module):
    """Without batch norm, so that a batch in parts is the whole batch."""

    def __init__(self, inputs: int = 6, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(inputs, 5)
        self.classifier = nn.Linear(5, classes)

    def outputs(self, images: Tensor) -> ModelOutput:
        features = self.hidden(images.flatten(1)).tanh()
        return ModelOutput((), features, self.classifier(features))

    def forward(self, images: Tensor) -> Tensor:
        return self.outputs(images).logits


def assert_same_weights(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, **tolerance)


def test_it_learns_and_writes_the_run_folder(tmp_path: Path) -> None:
    result = train(toy_task(), student="cnn-4", epochs=8, out=tmp_path / "run", write_centers=True)
    assert result.accuracy > 0.8
    files = {path.name for path in (tmp_path / "run").iterdir()}
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
    assert stored["accuracy"] == result.accuracy
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
    from preceptor.data.plan import epoch_order

    order = torch.as_tensor(epoch_order(10, True, 0, 0))
    network = Plain()
    for rows in (order[:8], order[8:]):
        loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    assert_same_weights(network, result.model, rtol=1e-4, atol=1e-6)


def test_moving_average() -> None:
    settings = {"epochs": 1, "batch_size": 32, "lr": 0.1, "warmup_epochs": 0.0}
    start = Plain().classifier.weight.detach().clone()
    plain = [start]
    for steps in (1, 2, 3):
        # 96 samples are three steps; the weights after each come from a shorter training.
        class Stop(Exception):
            pass

        from preceptor.distill import loop

        network, original = Plain(), loop.Loop._train_on

        def until(self, *arguments, original=original, steps=steps):
            if self.step == steps:
                raise Stop
            original(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop.Loop, "_train_on", until)
            try:
                train(vector_task(), student=network, **settings)
            except Stop:
                pass
        plain.append(network.classifier.weight.detach().clone())
    average = plain[0]
    for weight in plain[1:]:
        average = 0.75 * average + 0.25 * weight
    result = train(vector_task(), student=Plain(), ema=0.75, **settings)
    torch.testing.assert_close(result.model.classifier.weight.detach(), average, rtol=1e-4, atol=1e-6)


class Explodes(Method):
    name = "explodes"
    reference = "a test"
    needs = frozenset()
    term_names = ("task", "bad")

    def __init__(self, context: Context, **options: object) -> None:
        super().__init__(context, **options)
        self.register_buffer("count", torch.zeros(()))

    def terms(self, step: Step) -> dict[str, Tensor]:
        self.count += 1
        bad = torch.where(self.count > 8, torch.nan, 1.0)
        return {"task": task_loss(step), "bad": bad * step.student.logits.mean()}


def test_nan_stops_with_step_term_and_last_good_checkpoint(tmp_path: Path) -> None:
    message = r"diverged at step 8: term bad \(NaN\); the last good checkpoint is .*step-000000006.*; lower"
    with pytest.raises(PreceptorError, match=message):
        train(vector_task(), student=Plain(), method=Explodes, epochs=4, batch_size=32, out=tmp_path / "a",
              checkpoint_every=3)  # fmt: skip
    found = RunFolder(tmp_path / "a").load_checkpoint()
    assert found is not None
    assert all(value.isfinite().all() for value in found.section("student").values())


class Steep(Method):
    name, reference, needs, term_names = "steep", "a test", frozenset(), ("task",)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """A finite value with a gradient that is none: the root of zero."""
        return {"task": (0 * step.student.logits).sum().sqrt()}


def test_nan_in_the_weights_alone_never_reaches_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(
        PreceptorError, match="a weight is NaN or infinite after step 1; no checkpoint was written"
    ):
        train(vector_task(), student=Plain(), method=Steep, epochs=1, out=tmp_path / "a", checkpoint_every=1)
    assert RunFolder(tmp_path / "a").load_checkpoint() is None


def test_progress_shows_epoch_rate_terms_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=200)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    train(vector_task(), student="mlp-4", epochs=2, progress=True)
    for word in ("none epoch 2/2", "steps/s", "task 1.", "train ", "test "):
        assert word in screen.getvalue()


def test_a_pipe_sees_no_progress(capfd: pytest.CaptureFixture[str]) -> None:
    train(vector_task(), student="mlp-4", epochs=1)
    assert tuple(capfd.readouterr()) == ("", "")


def test_no_step_looks_at_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    original = monitor.Monitor.check
    monkeypatch.setattr(
        monitor.Monitor, "check", lambda self, words: looks.append(1) or original(self, words)
    )
    train(vector_task(), student="mlp-4", epochs=2, batch_size=8)
    assert len(looks) == 2  # 24 steps; one look at the end of each epoch


class Guarded(Split):
    """Says how far the training was whenever it is read."""

    def __init__(self, split: Split, log: Path) -> None:
        super().__init__(split.store, split.labels, split.rows)
        self.log, self.read_after = log, []

    def load(self, indices):
        epochs = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        self.read_after.append(epochs)
        return super().load(indices)


def test_early_stop_keeps_the_best_and_never_reads_test_before_the_end(tmp_path: Path) -> None:
    plain = toy_task(train=120)
    guarded = Guarded(plain.test, tmp_path / "a/log.jsonl")
    task = Task.from_splits(plain.train, guarded, plain.classes)
    result = train(
        task, student="cnn-2", epochs=40, patience=2, validation_fraction=0.2, lr=0.02, out=tmp_path / "a"
    )
    epochs = len(result.history)
    assert epochs < 40
    assert set(guarded.read_after) == {epochs}
    accuracies = [record["validation_accuracy"] for record in result.history]
    best = accuracies.index(max(accuracies))
    assert epochs == best + 3
    assert f"those of epoch {best + 1}" in result.notes[0]
    assert "test_accuracy" not in result.history[0]


def test_baseline_is_trained_and_said_honestly(tmp_path: Path) -> None:
    teacher = build("cnn-4", 4, (1, 8, 8), seed=5)  # knows nothing
    result = distill(
        "cnn-2", toy_task(), teacher, "sinkhorn", tmp_path / "a", epochs=2, with_baseline=True, weight=300.0
    )
    alone = train(toy_task(), student="cnn-2", epochs=2)
    assert result.baseline_accuracy == alone.accuracy
    stored = json.loads((tmp_path / "a/result.json").read_text())
    assert stored["baseline_accuracy"] == alone.accuracy
    assert stored["below_baseline"] == (result.accuracy < alone.accuracy)
    assert (tmp_path / "a/baseline/model.safetensors").exists()
    assert result.notes[-1] in stored["notes"]


def test_what_the_note_says() -> None:
    assert "10.0 points BELOW its plain baseline (40.0 % against 50.0 %)" in baseline_note(0.4, 0.5)
    assert "10.0 points above" in baseline_note(0.5, 0.4)
    assert "level with" in baseline_note(0.5, 0.5)


def test_the_teacher_sees_the_students_view_through_its_own_preprocessing() -> None:
    seen: list[Tensor] = []

    class Spy(Plain):
        def outputs(self, images: Tensor) -> ModelOutput:
            seen.append(images)
            return super().outputs(images)

    views: list[Tensor] = []

    class Watch(Method):
        name, reference, needs = "watch", "a test", frozenset({"teacher"})

        def terms(self, step: Step) -> dict[str, Tensor]:
            views.append(step.images)
            return {"task": task_loss(step)}

    config = {"input_shape": [1, 8, 8], "mean": [0.25], "std": [0.5], "classes": list("wxyz")}
    teacher = Result(Spy(64), 0.5, {}, [], [], config)
    task = toy_task()
    result = train(task, student=Plain(64), method=Watch, teacher=teacher, epochs=1, augment="pad-crop-flip")
    mean, std = result.config["mean"][0], result.config["std"][0]
    for theirs, own in zip(seen[-len(views) :], views, strict=True):
        torch.testing.assert_close(theirs * 0.5 + 0.25, own * std + mean, rtol=1e-4, atol=1e-5)


def test_cached_teacher_trains_the_same_student() -> None:
    calls = []

    class Counted(Plain):
        def outputs(self, images: Tensor) -> ModelOutput:
            calls.append(len(images))
            return super().outputs(images)

    settings = {"student": "mlp-4", "method": "kd", "epochs": 2, "teacher_classes": "abcd"}
    live = train(vector_task(), teacher=Plain(), **settings)
    cached = train(vector_task(), teacher=Counted(), cache_teacher=True, **settings)
    assert_same_weights(live.model, cached.model, rtol=1e-4, atol=1e-5)
    assert sum(calls) == 96 + 2  # once a sample, and a dry batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": "pad-crop-flip"}, "cannot be cached: augment pad-crop-flip shows a sample differently"),
        ({"mixup": 0.2}, "cannot be cached: mixup"),
        ({"method": "fitnet"}, "cannot be cached: method fitnet reads feature maps"),
        (
            {"method": "sskd", "teacher_classes": list("abcd")},
            "cannot be cached: method sskd makes further views",
        ),
    ],
)
def test_what_may_not_be_cached(options: dict[str, object], message: str) -> None:
    teacher = build("cnn-4", 4, (1, 8, 8), seed=5)
    with pytest.raises(PreceptorError, match=message):
        train(toy_task(), student="cnn-2", **{"method": "sinkhorn", "teacher": teacher, "cache_teacher": True, "epochs": 1, **options})  # noqa: E501  # fmt: skip


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
        ({"teacher": Plain(64), "method": "kd", "teacher_classes": ["a"]}, "4 logits and 1 class names came"),
        ({"tensorboard": True}, "tensorboard files lie in the run folder"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(PreceptorError, match=message):
        train(toy_task(), **{"student": "cnn-2", "epochs": 1, **options})


def test_bfloat16_and_clipping_and_adamw_train() -> None:
    result = train(
        toy_task(), student="cnn-4", recipe="adamw", epochs=6, lr=0.01, precision="bf16-mixed", clip=1.0
    )
    assert result.accuracy > 0.6


def test_tensorboard_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "a", tensorboard=True)
    assert list((tmp_path / "a/tensorboard").glob("events.*"))


@pytest.mark.slow
def test_compiled_networks_train_the_same() -> None:
    plain = train(vector_task(), student=Plain(), epochs=2)
    compiled = train(vector_task(), student=Plain(), epochs=2, compile=True)
    assert_same_weights(plain.model, compiled.model, rtol=1e-3, atol=1e-5)
