"""CIFAR-100 under the sliding-window protocol: data on the device, the teacher of the first window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from packed import Images, Pack, Schedule, Student
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from preceptor.core import Outputs
from preceptor.data.protocol import sliding_windows
from preceptor.models import build

WINDOW, STEP, ORDER_SEED = 50, 10, 0  # Sec. 6.1.1: 50 of 100 randomly sorted classes, 10 further each time
TEACHER = "wrn-40-2"


@dataclass(frozen=True)
class Cifar:
    """All of CIFAR-100 on one device."""

    train: Images
    test: Images
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor

    def window(self, number: int) -> tuple[Images, Images, tuple[str, ...]]:
        """Train and test images of a window, labels counted from 0, and its class names."""
        chosen = sliding_windows(len(self.classes), WINDOW, STEP, seed=ORDER_SEED)[number]
        names = tuple(self.classes[c] for c in chosen)
        return _relabelled(self.train, chosen), _relabelled(self.test, chosen), names


def load(root: Path, device: str) -> Cifar:
    """Read ``cifar100.npz`` (train_x, train_y, test_x, test_y, classes) from a folder."""
    arrays = np.load(root / "cifar100.npz")
    images = {
        split: Images(
            torch.from_numpy(arrays[f"{split}_x"]).permute(0, 3, 1, 2).contiguous().to(device),
            torch.from_numpy(arrays[f"{split}_y"]).long().to(device),
        )
        for split in ("train", "test")
    }
    pixels = images["train"].pixels
    mean = torch.stack([pixels[:, c].double().mean() for c in range(3)]).float() / 255
    std = torch.stack([pixels[:, c].double().std() for c in range(3)]).float() / 255
    return Cifar(images["train"], images["test"], tuple(arrays["classes"].tolist()), mean, std)


def _relabelled(images: Images, chosen: tuple[int, ...]) -> Images:
    places = torch.full((100,), -1, device=images.labels.device)
    places[torch.tensor(chosen, device=places.device)] = torch.arange(len(chosen), device=places.device)
    rows = torch.nonzero(places[images.labels] >= 0).flatten()
    return Images(images.pixels[rows], places[images.labels[rows]])


def per_class(images: Images, count: int, seed: int) -> Images:
    """The first `count` images of each class in a seeded order."""
    order = torch.randperm(len(images.labels), generator=torch.Generator().manual_seed(seed)).to(
        images.labels.device
    )
    rows = [order[images.labels[order] == c][:count] for c in range(int(images.labels.max()) + 1)]
    return images.subset(torch.cat(rows))


def split(images: Images, fraction: float, seed: int) -> tuple[Images, Images]:
    """A stratified validation share taken from the training images: (rest, validation)."""
    counts = torch.bincount(images.labels)
    held = per_class(Images(torch.arange(len(images.labels), device=images.labels.device), images.labels),
                     int(counts.min() * fraction), seed).pixels  # fmt: skip
    mask = torch.ones(len(images.labels), dtype=torch.bool, device=images.labels.device)
    mask[held] = False
    return images.subset(torch.nonzero(mask).flatten()), images.subset(held)


def teacher(
    cifar: Cifar, folder: Path, arch: str = TEACHER, window: int = 0, seed: int = 0, epochs: int = 200
) -> nn.Module:
    """The teacher of a window: loaded from `folder`, or trained as the paper says and kept there."""
    train, test, names = cifar.window(window)
    device = train.pixels.device
    network = build(arch, len(names), seed=seed).to(device).to(memory_format=torch.channels_last)
    path = folder / f"{arch}-window{window}-seed{seed}-{epochs}.safetensors"
    if path.exists():
        network.load_state_dict(load_file(path, device=str(device)))
    else:
        pack = Pack([Student(network, "none", {})], train, names, None, NO_TEACHER, cifar.mean, cifar.std,
                    Schedule(epochs=epochs), seed, compiled=device.type == "cuda")  # fmt: skip
        pack.train()
        pack.evaluate(test)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({k: v.contiguous() for k, v in network.state_dict().items()}, path)
        print(f"teacher {path.stem}: test accuracy {pack.students[0].accuracy:.4f}", flush=True)
    return network.eval().requires_grad_(False)


NO_TEACHER = {
    "teacher_classes": (),
    "teacher_classifier": None,
    "teacher_bias": None,
    "teacher_centers": None,
    "train_outputs": None,
}


@torch.no_grad()
def outputs(network: nn.Module, images: Images, cifar: Cifar, batch: int = 1000) -> Outputs:
    """A teacher's clean features and logits."""
    features, logits = [], []
    for start in range(0, len(images.labels), batch):
        view = images.pixels[start : start + batch].float() / 255
        view = (view - cifar.mean.view(1, -1, 1, 1)) / cifar.std.view(1, -1, 1, 1)
        out = network.outputs(view.contiguous(memory_format=torch.channels_last))
        features.append(out.features.float().cpu())
        logits.append(out.logits.float().cpu())
    return Outputs(torch.cat(features).numpy(), torch.cat(logits).numpy(), images.labels.cpu().numpy())


def facts(network: nn.Module, names: tuple[str, ...], own: Outputs, target: Outputs) -> dict:
    """What a method is told about the teacher: its own class means, and its view of the student's training set."""
    centers = torch.stack(
        [torch.from_numpy(own.features[own.labels == c]).mean(0) for c in range(len(names))]
    )
    return {
        "teacher_classes": names,
        "teacher_classifier": network.classifier.weight.detach().float().cpu(),
        "teacher_bias": network.classifier.bias.detach().float().cpu(),
        "teacher_centers": centers,
        "train_outputs": target,
    }
