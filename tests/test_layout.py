"""Networks that cannot work with channels last are trained, asked and ranked all the same; others are laid out so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from preceptor import Task, Zoo, distill, rank, train
from preceptor.core import ModelOutput
from preceptor.devices import laid_out, lay_out

CPU, SHAPE = torch.device("cpu"), (3, 8, 8)


class Flat(nn.Module):
    """A last map that is looked at as a vector where it lies."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5))
        self.classifier = nn.Linear(36, classes)

    def outputs(self, inputs: Tensor) -> ModelOutput:
        maps = self.body(inputs)
        features = maps.view(maps.size(0), -1)
        return ModelOutput((maps,), features, self.classifier(features))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.outputs(inputs).logits


def factory() -> nn.Module:
    return Flat(3)


def task() -> Task:
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 255, (24, *SHAPE)).astype(np.uint8), np.arange(24) % 2
    return Task.from_arrays(images, labels, images, labels, ["a", "b"])


def is_last(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def test_only_a_network_that_can_is_laid_out_with_channels_last() -> None:
    flat, free = Flat(), nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    for network in (flat, free):
        lay_out(network, CPU, SHAPE)
    images = torch.rand(2, *SHAPE)
    assert is_last(laid_out(images, free))
    assert is_last(free[0].weight)
    assert not is_last(laid_out(images, flat))
    assert not is_last(flat.body[0].weight)
    assert not is_last(laid_out(torch.rand(2, 5), free))


def test_weights_of_five_dimensions_stay_as_they_are() -> None:
    network = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 2, 3), nn.Flatten())
    lay_out(network, CPU, SHAPE)
    assert network[1].weight.is_contiguous()


def test_the_trial_leaves_modes_statistics_and_random_numbers_alone() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten())
    network[1].eval()
    before, statistics = torch.get_rng_state(), network[1].running_mean.clone()
    lay_out(network, CPU, SHAPE)
    torch.testing.assert_close(torch.get_rng_state(), before)
    torch.testing.assert_close(network[1].running_mean, statistics)
    assert [part.training for part in network.modules()] == [True, True, False, True, True]


def test_such_networks_are_students_teachers_and_ranked(tmp_path: Path) -> None:
    call = {"device": "cpu", "epochs": 1, "recipe": "quick", "progress": False, "augment": "none"}
    student = train(task(), student=Flat(), **call)
    assert distill(Flat(), task(), teacher=student, method="kd", **call).accuracy is not None
    zoo = Zoo(str(tmp_path / "zoo"))
    seen = {"input_size": SHAPE, "mean": [0.5] * 3, "std": [0.5] * 3}
    zoo.add(
        "python:tests.test_layout:factory",
        name="flat",
        classes=list("xyz"),
        preprocessing=seen,
        trust_code=True,
    )
    assert rank(zoo, task(), device="cpu", trust_code=True).best.endswith("flat")


@pytest.mark.parametrize("shape", [(5,), SHAPE])
def test_a_network_that_can_do_neither_is_left_to_the_pass_over_the_data(shape: tuple[int, ...]) -> None:
    network = nn.Linear(7, 2)
    lay_out(network, CPU, shape)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        network(laid_out(torch.rand(2, *shape), network))
