"""One contract for every architecture, and the published sizes."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from preceptor.core import PreceptorError
from preceptor.models import ARCHITECTURES, EXAMPLES, build

# architecture, input shape, shapes of the maps for one image (c, h, w)
CASES = [
    ("wrn-10-1", (3, 32, 32), [(16, 32, 32), (32, 16, 16), (64, 8, 8)]),
    ("wrn-16-2", (3, 32, 32), [(32, 32, 32), (64, 16, 16), (128, 8, 8)]),
    ("mobilenet-0.25", (3, 32, 32), [(32, 16, 16), (64, 8, 8), (128, 4, 4), (256, 2, 2)]),
    ("mobilenet-0.25", (3, 96, 96), [(32, 24, 24), (64, 12, 12), (128, 6, 6), (256, 3, 3)]),
    ("resnet-18", (3, 32, 32), [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]),
    ("resnet-18", (1, 64, 64), [(64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2)]),
    ("resnet-50", (3, 64, 64), [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]),
    ("cnn-8", (1, 28, 28), [(8, 14, 14), (16, 7, 7), (32, 3, 3)]),
    ("mlp-32", (10,), []),
    ("mlp-32", (1, 4, 4), []),
    ("timm:resnet10t", (3, 64, 64), [(64, 32, 32), (64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2)]),
    ("timm:test_vit", (3, 32, 32), [(64, 2, 2)] * 5),
]


def inputs(shape, rows=3):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("arch", "shape", "maps"), CASES)
def test_every_architecture_keeps_the_contract(arch, shape, maps, tmp_path):
    network = build(arch, 7, shape, seed=1).eval()
    assert network.arch == arch
    images = inputs(shape)
    with torch.no_grad():
        output = network.outputs(images)
        torch.testing.assert_close(network(images), output.logits)
        rebuilt = output.features @ network.classifier.weight.T + network.classifier.bias
    assert output.logits.shape == (3, 7)
    assert output.features.shape == (3, network.feature_size)
    torch.testing.assert_close(rebuilt, output.logits, rtol=1e-4, atol=1e-5)
    assert isinstance(output.maps, tuple)
    assert (
        [tuple(m.shape[1:]) for m in output.maps] == maps[-len(output.maps) :] if maps else output.maps == ()
    )
    assert all(m.shape[0] == 3 for m in output.maps)

    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    other = build(arch, 7, shape, seed=2).eval()
    with torch.no_grad():
        assert not torch.equal(other(images), output.logits)
        other.load_state_dict(load_file(tmp_path / "weights.safetensors"))
        torch.testing.assert_close(other(images), output.logits, rtol=0, atol=0)


def test_a_timm_model_without_intermediate_outputs_has_no_maps(monkeypatch):
    # Which models those are differs between timm's versions.
    monkeypatch.delattr("timm.models.resnet.ResNet.forward_intermediates")
    network = build("timm:resnet10t", 7, (3, 64, 64), seed=1).eval()
    images = inputs((3, 64, 64))
    with torch.no_grad():
        output = network.outputs(images)
        torch.testing.assert_close(network(images), output.logits)
    assert output.maps == ()


@pytest.mark.parametrize(
    "arch", ["wrn-10-1", "mobilenet-0.25", "resnet-18", "cnn-4", "mlp-8", "timm:resnet10t"]
)
def test_seed_fixes_the_weights_and_leaves_the_callers_random_state(arch):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (build(arch, 3, (3, 32, 32), seed=4).state_dict() for _ in range(2))
    torch.testing.assert_close(torch.get_rng_state(), before)
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("arch", ["wrn-10-1", "mobilenet-0.25", "resnet-18", "cnn-4", "mlp-8"])
def test_training_reaches_every_parameter(arch):
    network = build(arch, 3, (3, 32, 32), seed=0)
    assert network.training
    network(inputs((3, 32, 32), 4)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("arch", ["wrn-10-1", "mobilenet-0.25", "resnet-18", "cnn-4", "mlp-8"])
def test_outputs_trace_into_one_graph(arch):
    network = build(arch, 3, (3, 32, 32), seed=0).eval()
    images = inputs((3, 32, 32))
    compiled = torch.compile(lambda x: network.outputs(x).logits, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), network(images))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "arch", ["wrn-10-1", "mobilenet-0.25", "resnet-18", "cnn-4", "mlp-8", "timm:test_vit"]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_leaves_features_and_logits_in_full_precision(arch, compiled):
    network = build(arch, 5, (3, 32, 32), seed=0).eval()
    outputs = torch.compile(network.outputs, backend="eager", fullgraph=True) if compiled else network.outputs
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = outputs(inputs((3, 32, 32)))
        alone = network(inputs((3, 32, 32)))
    assert found.features.dtype == found.logits.dtype == torch.float32
    expected = torch.nn.functional.linear(
        found.features, network.classifier.weight, network.classifier.bias
    )  # outside autocast
    torch.testing.assert_close(found.logits, expected, rtol=1e-6, atol=1e-6)
    if not arch.startswith("timm:"):  # timm's forward is its own
        torch.testing.assert_close(alone, found.logits, rtol=1e-6, atol=1e-6)
    if found.maps and not arch.startswith("timm:"):
        assert found.maps[-1].dtype == torch.bfloat16
    if arch.startswith(("cnn", "resnet")):  # their features are the mean of the last map
        exact = found.maps[-1].double().mean((2, 3)).float()
        torch.testing.assert_close(found.features, exact, rtol=1e-6, atol=1e-6)
    torch._dynamo.reset()


def test_under_autocast_gradients_reach_every_parameter():
    network = build("cnn-4", 3, (1, 8, 8), seed=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        network.outputs(inputs((1, 8, 8), 4)).logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_a_network_keeps_its_own_precision():
    images = inputs((1, 8, 8))
    for dtype in (torch.bfloat16, torch.float64):
        output = build("cnn-4", 3, (1, 8, 8), seed=0).to(dtype).eval().outputs(images.to(dtype))
        assert output.features.dtype == output.logits.dtype == dtype
    shapes = build("cnn-4", 3, (1, 8, 8)).to("meta").outputs(images.to("meta"))
    assert shapes.logits.shape == (3, 3)


@pytest.mark.parametrize(
    ("arch", "num_classes", "shape", "count"),
    [
        ("wrn-40-2", 10, (3, 32, 32), 2_243_546),  # 2.2 M, Zagoruyko and Komodakis
        ("wrn-40-2", 100, (3, 32, 32), 2_255_156),
        ("wrn-16-1", 10, (3, 32, 32), 175_066),  # 0.17 M
        ("wrn-16-2", 100, (3, 32, 32), 703_284),
        ("wrn-40-1", 100, (3, 32, 32), 569_780),
        ("mobilenet-1.0", 1000, (3, 224, 224), 4_231_976),  # 4.2 M, Howard et al.
        ("mobilenet-0.75", 1000, (3, 224, 224), 2_585_560),  # 2.6 M
        ("mobilenet-0.5", 1000, (3, 224, 224), 1_331_592),  # 1.3 M
        ("mobilenet-0.25", 1000, (3, 224, 224), 470_072),  # 0.5 M
        ("resnet-50", 1000, (3, 224, 224), 25_557_032),  # 25.6 M
        ("resnet-34", 1000, (3, 224, 224), 21_797_672),
        ("resnet-18", 1000, (3, 224, 224), 11_689_512),
        ("resnet-18", 10, (3, 32, 32), 11_173_962),
    ],
)
def test_published_parameter_counts(arch, num_classes, shape, count):
    network = build(arch, num_classes, shape)
    assert sum(parameter.numel() for parameter in network.parameters()) == count


def test_resnet_agrees_with_torchvision():
    from torchvision.models import resnet18

    theirs = resnet18(num_classes=5).eval()
    ours = build("resnet-18", 5, (3, 64, 64), seed=0).eval()
    ours.load_state_dict(dict(zip(ours.state_dict(), _in_our_order(theirs, ours), strict=True)))
    images = inputs((3, 64, 64))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-4)


def _in_our_order(theirs, ours):
    """torchvision's tensors, matched through its names: layerL.B.convK/bnK and downsample."""
    source = theirs.state_dict()
    renamed = []
    for name in ours.state_dict():
        parts = name.split(".")
        if name.startswith("stem"):
            kind = "conv1" if parts[2] == "0" else "bn1"
            renamed.append(f"{kind}.{parts[-1]}")
        elif name.startswith("classifier"):
            renamed.append(f"fc.{parts[-1]}")
        else:
            prefix = f"layer{int(parts[1]) + 1}.{parts[2]}"
            if parts[3] == "shortcut":
                renamed.append(f"{prefix}.downsample.{parts[4]}.{parts[-1]}")
            else:
                kind = "conv" if parts[5] == "0" else "bn"
                renamed.append(f"{prefix}.{kind}{int(parts[4]) + 1}.{parts[-1]}")
    return [source[name] for name in renamed]


@pytest.mark.parametrize(("width_in", "width_out", "stride"), [(16, 16, 1), (16, 32, 2)])
def test_wide_block_follows_the_original_code(width_in, width_out, stride):
    """Zagoruyko's functional WRN: where the width changes, the shortcut starts after the first activation."""
    from preceptor.models.wide_resnet import Block

    torch.manual_seed(0)
    block = Block(width_in, width_out, stride).eval()
    for norm in (block.norm1, block.norm2):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = inputs((width_in, 8, 8))
    with torch.no_grad():
        o1 = torch.relu(block.norm1(x))
        o2 = torch.relu(block.norm2(torch.conv2d(o1, block.conv1.weight, stride=stride, padding=1)))
        z = torch.conv2d(o2, block.conv2.weight, padding=1)
        wanted = z + (x if width_in == width_out else torch.conv2d(o1, block.shortcut.weight, stride=stride))
        torch.testing.assert_close(block(x), wanted)


def test_initial_scale_survives_depth():
    network = build("wrn-40-2", 10, seed=0)
    maps = network.outputs(inputs((3, 32, 32), 8)).maps
    spread = np.array([m.std().item() for m in maps])
    assert (spread > 0.3).all()
    assert (spread < 30).all()


@pytest.mark.parametrize(
    ("arch", "shape", "message"),
    [
        ("wrn-16", (3, 32, 32), "expected wrn-DEPTH-WIDTH with a depth of 6n"),
        ("wrn-17-1", (3, 32, 32), "expected wrn-DEPTH-WIDTH with a depth of 6n"),
        ("wrn_16_1", (3, 32, 32), "no architecture 'wrn_16_1'; did you mean 'wrn-16-1"),
        ("mobilnet-0.5", (3, 32, 32), "did you mean 'mobilenet-0.5"),
        ("mobilenet-9", (3, 32, 32), "expected mobilenet-WIDTH with a width from 0.1 to 4"),
        ("resnet-19", (3, 32, 32), "expected one of resnet-18, resnet-34, resnet-50"),
        ("cnn-x", (1, 28, 28), "expected cnn-WIDTH with a whole number, such as cnn-16"),
        ("cnn-8", (1, 4, 4), "use 8 px or more"),
        ("cnn-8", (12,), "use mlp-256 for vectors"),
        ("mlp-0", (12,), "expected mlp-HIDDEN"),
        ("timm:resnet1o", (3, 32, 32), "timm has no model 'resnet1o'; did you mean"),
        ("timm:resnetv2_50", (3, 64, 64), "ends in a Conv2d, not in one nn.Linear"),
        ("timm:test_vit", (3, 24, 24), "divisible by patch size .* such as 160, which it is made for"),
        (
            "timm:test_convnext",
            (1, 8, 8),
            "timm:test_convnext cannot be built for inputs of shape .1, 8, 8.: .*another",
        ),
        ("", (3, 32, 32), "no architecture ''"),
    ],
)
def test_wrong_names_are_answered_with_what_to_do(arch, shape, message):
    with pytest.raises(PreceptorError, match=message):
        build(arch, 5, shape)


def test_a_timm_model_without_a_head_is_refused_in_a_sentence(monkeypatch):
    """As timm's encoders, which do not even know the question."""
    monkeypatch.delattr("timm.models.resnet.ResNet.get_classifier")
    with pytest.raises(PreceptorError, match=r"ends without a head, not in one nn\.Linear"):
        build("timm:resnet10t", 5, (3, 64, 64))


def test_examples_cover_the_registry_and_pretrained_is_for_timm():
    assert {name.split(":")[0].split("-")[0] for name in EXAMPLES} == set(ARCHITECTURES)
    with pytest.raises(PreceptorError, match="has no published weights"):
        build("wrn-16-1", 10, pretrained=True)
    with pytest.raises(PreceptorError, match="must be positive"):
        build("wrn-16-1", 0)
