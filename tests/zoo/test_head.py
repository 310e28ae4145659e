"""The head of every kind of network is found right, or the network is refused with the reason."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from preceptor.core import PreceptorError
from preceptor.zoo.head import find_head
from preceptor.zoo.network import TorchNetwork, find_maps

CLASSES = 5
INPUTS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Trunk(nn.Module):
    """(B, 3, 8, 8) -> (B, 6, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = Trunk()
        self.fc = nn.Linear(6, CLASSES)

    def pooled(self, x: Tensor) -> Tensor:
        return self.trunk(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pooled(x))


class Tokens(Net):
    """A head on tokens, then one of several reductions."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = reduction

    def tokens(self, x: Tensor) -> Tensor:
        return self.trunk(x).flatten(2).transpose(1, 2)  # (B, 16, 6)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.fc(self.tokens(x))
        if self.reduction == "mean":
            return logits.mean(1)
        if self.reduction == "max":
            return logits.amax(1)
        return logits[:, {"first": 0, "last": -1, "third": 2}[self.reduction]]


class Convolution(Net):
    def __init__(self, after: nn.Module, size: int = 1) -> None:
        super().__init__()
        del self.fc
        self.head = nn.Conv2d(6, CLASSES, size)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.head(self.trunk(x))).mean((2, 3))


class Cosine(nn.Linear):
    """Looks like a linear layer, computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))


class FunctionalCosine(Net):
    def __init__(self) -> None:
        super().__init__()
        del self.fc
        self.prototypes = nn.Parameter(torch.randn(CLASSES, 6))

    def forward(self, x: Tensor) -> Tensor:
        return 10 * F.linear(F.normalize(self.pooled(x), dim=1), F.normalize(self.prototypes, dim=1))


class TwoHeads(Net):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.other = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor] | dict[str, Tensor]:
        features = self.pooled(x)
        first, second = self.fc(features), self.other(features.square())
        if self.mode == "dict":
            return {"a": first, "b": second}
        return {"tuple": (first, second), "mean": (first + second) / 2, "unused": first}[self.mode]


class After(Net):
    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(super().forward(x))


class AlwaysDropout(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.dropout(self.pooled(x), 0.5, training=True))


class BatchDependent(Net):
    def forward(self, x: Tensor) -> Tensor:
        features = self.pooled(x)
        return self.fc(features - features.mean(0))


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


def assert_right(network: nn.Module, features: Tensor) -> None:
    wrapped = TorchNetwork.discover(network, INPUTS)
    output = wrapped(INPUTS)
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, network.eval()(INPUTS))
    bias = 0 if wrapped.bias is None else wrapped.bias
    torch.testing.assert_close(output.features @ wrapped.weight.T + bias, output.logits)


def test_linear_head() -> None:
    net = Net()
    assert_right(net, net.pooled(INPUTS).detach())


def test_head_without_bias() -> None:
    net = Net()
    net.fc = nn.Linear(6, CLASSES, bias=False)
    assert_right(net, net.pooled(INPUTS).detach())


def test_dropout_and_train_mode_are_switched_off() -> None:
    net = Net()
    net.fc = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, CLASSES))  # type: ignore[assignment]
    net.train()
    head = find_head(net, INPUTS)
    assert not any(module.training for module in net.modules())
    assert head.path == "fc.2"
    assert_right(net, net.fc[0](net.pooled(INPUTS)).detach())


def test_layers_with_as_many_outputs_inside_the_network_do_not_confuse() -> None:
    net = Net()
    net.fc = nn.Sequential(nn.Linear(6, CLASSES), nn.ReLU(), nn.Linear(CLASSES, CLASSES))  # type: ignore[assignment]
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


def test_convolution_head_with_mean() -> None:
    net = Convolution(nn.Identity())
    assert_right(net, net.pooled(INPUTS).detach())


def test_a_head_that_is_computed_but_not_used_is_not_taken() -> None:
    net = TwoHeads("unused")
    assert find_head(net, INPUTS).path == "fc"
    assert_right(net, net.pooled(INPUTS).detach())


def cosine_layer() -> nn.Module:
    net = Net()
    net.fc = Cosine(6, CLASSES, bias=False)
    return net


def positive_logits_then_relu() -> nn.Module:
    """The ReLU does not show on any ordinary input: only planted numbers tell."""
    net = After(nn.ReLU())
    net.fc.bias.data += 100
    return net


def small_logits_then_cap() -> nn.Module:
    net = After(nn.Hardtanh(-10, 10))
    net.fc.weight.data *= 0.1
    return net


def broken_weights() -> nn.Module:
    net = Net()
    net.fc.weight.data[0, 0] = torch.nan
    return net


REFUSED = [
    (TwoHeads("tuple"), "tuple of 2 outputs.*several heads"),
    (TwoHeads("dict"), "dict of 2 outputs.*several heads"),
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
    return torchvision.models.squeezenet1_1(num_classes=CLASSES).eval()


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


def test_maps_are_the_last_of_each_resolution() -> None:
    network, inputs = torchvision.models.resnet18().eval(), torch.randn(2, 3, 64, 64)
    wrapped = TorchNetwork.discover(network, inputs)
    assert wrapped.record.maps == ("relu", "layer1", "layer2", "layer3", "layer4")
    maps = wrapped(inputs).maps
    assert [tuple(m.shape[1:]) for m in maps] == [
        (64, 32, 32),
        (64, 16, 16),
        (128, 8, 8),
        (256, 4, 4),
        (512, 2, 2),
    ]
    assert wrapped(inputs, maps=False).maps == ()


def test_channels_last_networks_have_no_maps() -> None:
    class ChannelsLast(Net):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.norm(self.trunk(x).permute(0, 2, 3, 1)).mean((1, 2)))

    assert find_maps(ChannelsLast().eval(), INPUTS, "fc") == ()
