"""The linear head of every kind of network is found, with the features that it reads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from preceptor.zoo.head import find_head
from preceptor.zoo.network import TorchNetwork
from tests.zoo.head_networks import INPUTS, NUM_CLASSES, Convolution, Net, Tokens, TwoHeads


def assert_right(network: nn.Module, features: Tensor) -> None:
    wrapped = TorchNetwork.discover(network, INPUTS)
    output = wrapped(INPUTS)
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, network.eval()(INPUTS))
    bias = 0 if wrapped.bias is None else wrapped.bias
    torch.testing.assert_close(output.features @ wrapped.weight.T + bias, output.logits)


def without_bias() -> Net:
    net = Net()
    net.fc = nn.Linear(6, NUM_CLASSES, bias=False)
    return net


@pytest.mark.parametrize(
    "net", [Net(), without_bias(), Convolution(nn.Identity())], ids=["linear", "without-bias", "convolution"]
)
def test_a_head_on_pooled_features(net: Net) -> None:
    assert_right(net, net.pooled(INPUTS).detach())


def test_dropout_and_train_mode_are_switched_off() -> None:
    net = Net()
    net.fc = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, NUM_CLASSES))  # type: ignore[assignment]
    net.train()
    head = find_head(net, INPUTS)
    assert not any(module.training for module in net.modules())
    assert head.path == "fc.2"
    assert_right(net, net.fc[0](net.pooled(INPUTS)).detach())


def test_layers_with_as_many_outputs_inside_the_network_do_not_confuse() -> None:
    net = Net()
    net.fc = nn.Sequential(nn.Linear(6, NUM_CLASSES), nn.ReLU(), nn.Linear(NUM_CLASSES, NUM_CLASSES))  # type: ignore[assignment]
    assert find_head(net, INPUTS).path == "fc.2"


@pytest.mark.parametrize("kind", ["old", "new"])
def test_weight_norm_gives_the_weights_in_force(kind: str) -> None:
    net = Net()
    if kind == "old":
        with pytest.warns(FutureWarning, match="weight_norm"):
            net.fc = torch.nn.utils.weight_norm(net.fc)
        net.fc.weight_g.data *= 2
    else:
        net.fc = torch.nn.utils.parametrizations.weight_norm(net.fc)
        net.fc.parametrizations.weight.original0.data *= 2
    assert_right(net, net.pooled(INPUTS).detach())


@pytest.mark.parametrize("reduction", ["mean", "first", "last"])
def test_token_head(reduction: str) -> None:
    net = Tokens(reduction)
    tokens = net.tokens(INPUTS).detach()
    expected = {"mean": tokens.mean(1), "first": tokens[:, 0], "last": tokens[:, -1]}[reduction]
    assert find_head(net, INPUTS).reduction == reduction
    assert_right(net, expected)


def test_a_head_that_is_computed_but_not_used_is_not_taken() -> None:
    net = TwoHeads("unused")
    assert find_head(net, INPUTS).path == "fc"
    assert_right(net, net.pooled(INPUTS).detach())


class InADict(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"loss": torch.zeros(()), "logits": super().forward(x)}


def test_logits_may_come_under_their_name() -> None:
    net = InADict()
    output = TorchNetwork.discover(net, INPUTS)(INPUTS)
    torch.testing.assert_close(output.features, net.pooled(INPUTS))
    torch.testing.assert_close(output.logits, net(INPUTS)["logits"])
