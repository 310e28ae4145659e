"""A network without a linear head is refused with the reason, or on demand made to have one."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn

from preceptor.core import PreceptorError
from preceptor.zoo.head import find_head
from preceptor.zoo.network import TorchNetwork
from tests.zoo.head_networks import (
    INPUTS,
    NUM_CLASSES,
    After,
    AlwaysDropout,
    BatchDependent,
    Convolution,
    FunctionalCosine,
    Net,
    Scale,
    Tokens,
    Trunk,
    TwoHeads,
    broken_weights,
    cosine_layer,
    positive_logits_then_relu,
    small_logits_then_cap,
)

REFUSED = [
    (TwoHeads("tuple"), "tuple of 2 outputs.*wrap it"),
    (TwoHeads("dict"), "dict of 2 outputs.*or name it 'logits'"),
    (TwoHeads("mean"), r"several layers give 5 outputs \(fc, other\)"),
    (cosine_layer(), r"'fc' is no features @ W.T \+ b"),
    (FunctionalCosine(), "no linear layer gives the network's 5 outputs"),
    (After(nn.Softmax(1)), "layer 'fc' is not the network's output.*softmax"),
    (After(Scale()), "layer 'fc' is not the network's output.*scale"),
    (positive_logits_then_relu(), "layer 'fc' is not the network's output.*ReLU"),
    (small_logits_then_cap(), "layer 'fc' is not the network's output"),
    (Tokens("max"), "'fc', applied to 16 positions, is not the network's output"),
    (Tokens("third"), "'fc', applied to 16 positions, is not the network's output"),
    (Convolution(nn.ReLU()), "'head', applied to 16 positions, is not.*--linear-head"),
    (Convolution(nn.Identity(), size=3), "no linear layer gives the network's 5 outputs"),
    (AlwaysDropout(), "other outputs for the same inputs"),
    (BatchDependent(), "depend on the others in the batch"),
    (broken_weights(), "not finite"),
    (Trunk(), r"returns \(4, 6, 4, 4\); a classifier returns logits"),
]


@pytest.mark.parametrize(("network", "reason"), REFUSED, ids=[reason[:30] for _, reason in REFUSED])
def test_refused_with_the_reason(network: nn.Module, reason: str) -> None:
    with pytest.raises(PreceptorError, match=reason):
        TorchNetwork.discover(network, INPUTS)


def squeezenet() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.squeezenet1_1(num_classes=NUM_CLASSES).eval()


def test_squeezenet_is_refused_for_the_relu_behind_its_convolution() -> None:
    with pytest.raises(PreceptorError, match=r"'classifier.1', applied to 9 positions.*ReLU.*--linear-head"):
        find_head(squeezenet(), torch.randn(4, 3, 64, 64))


def test_squeezenet_on_demand_is_the_network_without_that_relu() -> None:
    network, inputs = squeezenet(), torch.randn(4, 3, 64, 64)
    wrapped = TorchNetwork.discover(network, inputs, linear_head=True)
    assert wrapped.record.linearised
    output = wrapped(inputs)
    network.classifier[2] = nn.Identity()
    torch.testing.assert_close(output.logits, network(inputs))
    torch.testing.assert_close(output.features, network.features(inputs).mean((2, 3)))


def test_on_demand_says_nothing_where_nothing_needs_leaving_out() -> None:
    assert not TorchNetwork.discover(Net(), INPUTS, linear_head=True).record.linearised


@pytest.mark.parametrize("network", [TwoHeads("mean"), cosine_layer(), FunctionalCosine()])
def test_on_demand_does_not_excuse_what_has_no_single_linear_head(network: nn.Module) -> None:
    with pytest.raises(PreceptorError):
        TorchNetwork.discover(network, INPUTS, linear_head=True)
