"""Clean passes of a network over images as they are."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from experiments.images import Images


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Images from 0 to 255 as the networks take them."""
    images = (pixels.float() / 255 - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1)
    return images.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def clean_outputs(
    network: nn.Module, data: Images, mean: Tensor, std: Tensor, batch_size: int = 1000, exact: bool = True
) -> tuple[Tensor, Tensor]:
    """Features and logits in evaluation mode: (N, d), (N, C) on the images' device.

    `exact` passes are in float32, which centres and probes deserve; others on a GPU are in bfloat16 as in training.
    """
    was_training = network.training
    network.eval()
    features, logits = [], []
    half = data.pixels.device.type == "cuda" and not exact
    for start in range(0, len(data), batch_size):
        with torch.autocast("cuda", torch.bfloat16) if half else nullcontext():
            out = network.outputs(normalised(data.pixels[start : start + batch_size], mean, std))
        features.append(out.features.float())
        logits.append(out.logits.float())
    network.train(was_training)
    return torch.cat(features), torch.cat(logits)
