"""The data of the experiments: CIFAR-100 and CUB under the sliding-window protocol, other domains, toys.

A task is a number: the window's place for data that slides, 0 for all classes of data that does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.images import Canvases, Images
from experiments.schedule import CIFAR_MILESTONES, CUB_MILESTONES
from experiments.superclasses import SUPERCLASSES
from preceptor.data.protocol import class_order, overlap, sliding_windows
from preceptor.data.residence import Canvases as CanvasesOf
from preceptor.data.residence import Squares
from preceptor.data.task import Task

ORDER_SEED = 0
PIXELS = 112
# One normalisation for all photographs, so that a teacher of one domain sees another as it saw its own (ImageNet's).
PHOTO_MEAN, PHOTO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Kind:
    """What is known about data before it is read."""

    classes: int
    window: int | None  # classes of a task; None: there is one task with all classes
    step: int
    batch: int
    milestones: tuple[float, ...]
    per_class: int  # training images
    size: int  # px

    @property
    def tasks(self) -> int:
        """How many tasks it gives."""
        return 1 if self.window is None else (self.classes - self.window) // self.step + 1

    def chosen(self, task: int) -> tuple[int, ...]:
        """The classes of a task, in its order."""
        if self.window is None:
            return tuple(range(self.classes))
        return sliding_windows(self.classes, self.window, self.step, seed=ORDER_SEED)[task]

    def overlap(self, teacher_task: int, task: int) -> float:
        """The paper's g between two tasks of this data."""
        return overlap(self.chosen(teacher_task), self.chosen(task))


# The training images of a class in two halves, so that a teacher of one has not seen those of the other.
HALVES = {"cifar100-first": 0, "cifar100-second": 1}
KINDS: dict[str, Kind] = {
    "cifar100": Kind(100, 50, 10, 256, CIFAR_MILESTONES, 500, 32),  # Sec. 6.1.1 and 6.1.2
    **dict.fromkeys(HALVES, Kind(100, 50, 10, 256, CIFAR_MILESTONES, 250, 32)),
    "cifar100-all": Kind(100, None, 0, 256, CIFAR_MILESTONES, 500, 32),
    "cub200": Kind(200, 100, 25, 128, CUB_MILESTONES, 30, PIXELS),
    "cub200-all": Kind(200, None, 0, 128, CUB_MILESTONES, 30, PIXELS),
    # 40 classes of each domain; those of birds are the first in the seeded order.
    **{name: Kind(40, None, 0, 128, CUB_MILESTONES, 30, PIXELS)
       for name in ("birds", "cars", "dogs", "flowers", "fruits")},
}  # fmt: skip
TOYS: dict[str, Kind] = {
    "cifar100": Kind(10, 5, 1, 8, CIFAR_MILESTONES, 8, 16),
    **dict.fromkeys(HALVES, Kind(10, 5, 1, 8, CIFAR_MILESTONES, 4, 16)),
    "cifar100-all": Kind(4, None, 0, 8, CIFAR_MILESTONES, 8, 16),
    "cub200": Kind(8, 4, 1, 8, CUB_MILESTONES, 8, 32),
    "cub200-all": Kind(8, None, 0, 8, CUB_MILESTONES, 8, 32),
    **{name: Kind(4, None, 0, 8, CUB_MILESTONES, 8, 32)
       for name in ("birds", "cars", "dogs", "flowers", "fruits")},
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Data on one device."""

    name: str
    kind: Kind
    train: Images
    test: Images
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor
    superclasses: Mapping[str, str]

    def task(self, number: int) -> tuple[Images, Images, tuple[str, ...]]:
        """Train and test images of a task, labels counted from 0, and its class names."""
        chosen = self.kind.chosen(number)
        names = tuple(self.classes[c] for c in chosen)
        return self.train.of_classes(chosen), self.test.of_classes(chosen), names


def half(whole: Source, name: str) -> Source:
    """One of the `HALVES` of data: the same classes, test images and normalisation."""
    parts = whole.train.held_out(0.5, seed=0)
    kind = replace(whole.kind, per_class=whole.kind.per_class // 2)
    return replace(whole, name=name, kind=kind, train=parts[HALVES[name]])


def load(name: str, root: Path, device: str) -> Source:
    """Read data from the folder that holds ``cifar100.npz``, ``cub200/`` and ``domains/``."""
    kind = KINDS[name]
    if name.startswith("cifar100"):
        return _cifar(name, root / "cifar100.npz", kind, device)
    folder = root / ("cub200" if name in ("cub200", "cub200-all", "birds") else f"domains/{name}")
    names = None
    if name == "birds":
        every = Task(folder).classes
        names = [every[place] for place in class_order(len(every), ORDER_SEED)[: kind.classes]]
    task = Task(folder, classes=names)
    if len(task.classes) != kind.classes:
        raise SystemExit(f"{folder} has {len(task.classes)} classes, {kind.classes} were expected")
    train = Squares(task.train, torch.device(device), kind.size).data
    boxes = CanvasesOf(task.train, torch.device(device), kind.size)
    canvases = Canvases(boxes.data, boxes.heights, boxes.widths)
    test = Squares(task.test, torch.device(device), kind.size).data
    labels = [torch.from_numpy(split.labels).to(device) for split in (task.train, task.test)]
    mean, std = torch.tensor(PHOTO_MEAN, device=device), torch.tensor(PHOTO_STD, device=device)
    return Source(name, kind, Images(train, labels[0], canvases), Images(test, labels[1]), task.classes,
                  mean, std, {})  # fmt: skip


def _cifar(name: str, path: Path, kind: Kind, device: str) -> Source:
    if not path.exists():
        raise SystemExit(f"{path} is not there; --data names the folder that holds it")
    arrays = np.load(path)
    train, test = (
        Images(
            torch.from_numpy(arrays[f"{split}_x"]).permute(0, 3, 1, 2).contiguous().to(device),
            torch.from_numpy(arrays[f"{split}_y"]).long().to(device),
        )
        for split in ("train", "test")
    )
    classes = tuple(arrays["classes"].tolist())
    return Source(name, kind, train, test, classes, *_moments(train.pixels), SUPERCLASSES)


def _moments(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, channel by channel for the sake of memory."""
    channels = [pixels[:, c].double() for c in range(pixels.shape[1])]
    mean, std = (
        torch.stack([getattr(c, name)() for c in channels]).float() / 255 for name in ("mean", "std")
    )
    return mean, std


def toy(name: str, device: str) -> Source:
    """Coloured stripes under noise, as many as a network learns in a second; sizes vary where the real ones do."""
    kind = TOYS[name]
    chance = torch.Generator().manual_seed(len(name))
    angle = torch.linspace(0, np.pi, kind.classes + 1)[:-1]
    colour = torch.rand(kind.classes, 3, generator=chance)
    place = torch.arange(kind.size).float()

    def split(count: int) -> Images:
        labels = torch.arange(kind.classes).repeat_interleave(count)
        across = angle[labels].cos()[:, None, None] * place[None, :, None]
        waves = across + angle[labels].sin()[:, None, None] * place[None, None, :]
        pattern = waves.mul(0.8).sin().add(1).div(2)[:, None] * colour[labels][:, :, None, None]
        noise = torch.rand(len(labels), 3, kind.size, kind.size, generator=chance)
        pixels = (160 * pattern + 95 * noise).to(torch.uint8).to(device)
        return Images(pixels, labels.to(device))

    train, test = split(kind.per_class), split(4)
    if kind.size == 32:
        sides = torch.full((len(train),), 32.0, device=device)
        wide = torch.nn.functional.pad(train.pixels, (0, 8))
        train = Images(train.pixels, train.labels, Canvases(wide, sides, sides))
    names = tuple(f"{name}-{c}" for c in range(kind.classes))
    groups = {label: f"group {c // 2}" for c, label in enumerate(names)}
    return Source(name, kind, train, test, names, *_moments(train.pixels), groups)
