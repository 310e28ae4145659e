from __future__ import annotations

import pytest
import torch
from experiments.merged import Merged, can_merge
from experiments.packed import Pack
from experiments.pupils import Student
from torch import nn

from experiments import sources
from preceptor.distill.losses import METHODS
from preceptor.models import build
from tests.experiments.test_packed import scene, tutor, weights

SHAPE = (3, 16, 16)


@pytest.fixture(scope="module")
def source():
    return sources.toy("cifar100", "cpu")


def networks(arch, count=3):
    return [build(arch, 5, SHAPE, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("arch", ["wrn-10-1", "wrn-16-2", "cnn-4", "resnet-18", "mobilenet-0.25"])
def test_merged_networks_say_what_they_say_alone(arch):
    ones, images = [one.double() for one in networks(arch)], torch.randn(6, *SHAPE).double()
    merged = Merged(ones, images).train()
    out = merged.outputs(images)
    for place, one in enumerate(ones):
        alone, part = one.train().outputs(images), merged.part(out, place)
        torch.testing.assert_close(part.logits, alone.logits, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(part.features, alone.features, atol=1e-9, rtol=1e-9)
        assert len(part.maps) == len(alone.maps) > 0
        for mine, other in zip(part.maps, alone.maps, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-9, rtol=1e-9)


def test_weights_and_statistics_come_back():
    ones, images = networks("wrn-10-1"), torch.randn(6, *SHAPE)
    merged = Merged(ones, images).train()
    merged.outputs(images)
    with torch.no_grad():
        for parameter in merged.parameters():
            parameter.add_(0.5)
    before = [{name: value.clone() for name, value in one.state_dict().items()} for one in ones]
    merged.write_back(ones)
    for one, old in zip(ones, before, strict=True):
        for name, value in one.named_parameters():
            torch.testing.assert_close(value, old[name] + 0.5)
    expected = [build("wrn-10-1", 5, SHAPE, seed=seed).train() for seed in range(3)]
    for one, other in zip(ones, expected, strict=True):
        other.outputs(images)
        for name, value in other.named_buffers():
            torch.testing.assert_close(one.get_buffer(name), value, atol=1e-5, rtol=1e-4)


def test_layers_that_mix_channels_are_not_merged():
    assert can_merge(build("wrn-10-1", 5, SHAPE))
    assert not can_merge(build("mlp-8", 5, (4,)))
    assert not can_merge(nn.Linear(3, 2))


@pytest.mark.parametrize("method", ["sinkhorn", "rkd", "fitnet"])
def test_a_merged_pack_trains_as_one_that_is_not(source, method):
    taught = tutor(source)

    def students():
        names = ("none", method, method)
        return [Student(build("wrn-10-1", 5, SHAPE, seed=s), METHODS[n], {}, taught if METHODS[n].needs else None)
                for s, n in enumerate(names)]  # fmt: skip

    merged, apart = students(), students()
    setting = scene(source, rate=0.01)  # at a small rate rounding does not grow
    pack = Pack(merged, setting)
    assert [choir.places for choir in pack.choirs] == ([[0], [1, 2]] if method == "fitnet" else [[0, 1, 2]])
    pack.train()
    pack = Pack(apart, setting, merged=False)
    assert len(pack.choirs) == 3
    pack.train()
    begun = students()
    for one, other, start in zip(merged, apart, begun, strict=True):
        moved = weights(other) - weights(start)
        assert (weights(one) - weights(other)).norm() < 0.01 * moved.norm()
        assert one.final_loss == pytest.approx(other.final_loss, rel=1e-3)
