"""Images that are not square: the same middle square in training, prediction, the zoo and the exported graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from preceptor.data.task import Task
from preceptor.distill.export import export
from preceptor.distill.saved_run import load_run, predict, split_probabilities
from preceptor.distill.schedules import distill
from preceptor.distill.train import train
from preceptor.zoo import Zoo

TALL_AND_WIDE = [(40, 24), (24, 40)]


def pictures(height: int, width: int, count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Two kinds of noise, (N, H, W, 3)."""
    random = np.random.default_rng(height)
    labels = np.arange(count) % 2
    noise = random.integers(0, 128, (count, height, width, 3))
    return (noise + 127 * labels[:, None, None, None]).astype(np.uint8), labels


def as_arrays(height: int, width: int, folder: Path) -> Task:
    images, labels = pictures(height, width)
    return Task.from_arrays(images, labels, images, labels, ["a", "b"])


def as_folder(height: int, width: int, folder: Path) -> Task:
    for number, (image, label) in enumerate(zip(*pictures(height, width), strict=True)):
        place = folder / "photos" / "ab"[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:02}.png")
    return Task(folder / "photos")


def middle(image: np.ndarray) -> np.ndarray:
    """The middle 24 x 24 px: (H, W, 3) -> float (3, 24, 24) in [0, 1]."""
    top, left = (image.shape[0] - 24) // 2, (image.shape[1] - 24) // 2
    return image[top : top + 24, left : left + 24].transpose(2, 0, 1).astype(np.float32) / 255


@pytest.mark.parametrize("read", [as_arrays, as_folder])
@pytest.mark.parametrize(("height", "width"), TALL_AND_WIDE)
@pytest.mark.parametrize("arch", ["cnn-4", "mlp-8"])  # one that takes any size, one that takes its own only
def test_training_prediction_and_export_see_one_square(tmp_path: Path, read, height, width, arch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    task = read(height, width, tmp_path)
    result = train(task, student=arch, epochs=1, out=tmp_path / "run", device="cpu")
    assert json.loads((tmp_path / "run/config.json").read_text())["input_shape"] == [3, 24, 24]
    assert f"the images have {height} x {width} px" in result.notes[0]
    assert "only the middle 24 x 24 px of each are used" in result.notes[0]

    images, _ = pictures(height, width)
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    (said,) = predict(tmp_path / "run", tmp_path / "a.png")
    assert export(tmp_path / "run", tmp_path / "a.onnx").input_shape == (3, 24, 24)
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": middle(images[0])[None]})
    shares = torch.from_numpy(logits[0]).softmax(0)
    torch.testing.assert_close(
        torch.tensor(dict(zip(said.classes, said.probabilities, strict=True))["a"]), shares[0]
    )


@pytest.mark.parametrize(("height", "width"), TALL_AND_WIDE)
def test_a_teacher_of_such_images_sees_what_it_was_trained_on(tmp_path: Path, height, width) -> None:
    task = as_arrays(height, width, tmp_path)
    train(task, student="mlp-8", epochs=1, out=tmp_path / "run", device="cpu")
    card = Zoo(tmp_path / "zoo").add(f"run:{tmp_path / 'run'}", name="t")
    assert card.preprocessing.input_size == (3, 24, 24)
    teacher = Zoo(tmp_path / "zoo").load("t")
    rows = np.arange(len(task.test))
    logits = teacher.logits(teacher.preprocessing.apply(task.test.load(rows)))
    expected = split_probabilities(load_run(tmp_path / "run"), task.test)
    torch.testing.assert_close(logits.softmax(1), torch.from_numpy(expected))
    taught = distill("mlp-4", task, f"{tmp_path}/zoo/t", "kd", epochs=1, device="cpu")
    assert taught.config["input_shape"] == [3, 24, 24]


def test_squares_and_images_of_a_size_that_was_asked_for_need_no_words(tmp_path: Path) -> None:
    square = train(as_arrays(24, 24, tmp_path), student="cnn-2", epochs=1, device="cpu", augment="none")
    assert square.notes == ()
    asked = train(
        as_arrays(24, 40, tmp_path), student="cnn-2", epochs=1, device="cpu", image_size=16, augment="none"
    )
    assert (asked.config["input_shape"], asked.notes) == ([3, 16, 16], ())
