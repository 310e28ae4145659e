"""The tensors of a small network, whole or not."""

from __future__ import annotations

import timm
import torch


def resnet_state(num_classes: int) -> dict[str, torch.Tensor]:
    return timm.create_model("test_resnet", num_classes=num_classes).state_dict()


def without(tensors: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if name not in names}
