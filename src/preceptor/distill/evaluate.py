"""How good a network is on a split: accuracy, by class, and which classes it takes for which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.devices import in_parts, laid_out
from preceptor.distill.devices import sum_over_processes

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Evaluation:
    """Counts over a split; rows of the confusion are true classes, columns what was said."""

    confusion: tuple[tuple[int, ...], ...]  # (C, C)
    loss: float  # mean cross-entropy

    @property
    def accuracy(self) -> float:
        """The share of samples that are right."""
        total = sum(map(sum, self.confusion))
        return sum(row[place] for place, row in enumerate(self.confusion)) / total

    @property
    def per_class_accuracy(self) -> tuple[float | None, ...]:
        """The share of each class's samples that are right; None for a class without samples."""
        return tuple(row[place] / sum(row) if sum(row) else None for place, row in enumerate(self.confusion))


@torch.no_grad()
def evaluate(
    network: nn.Module,
    loader: Any,
    normalise: Callable[[Tensor], Tensor],
    num_classes: int,
    fabric: Fabric,
) -> Evaluation:
    """Run `network` over an unaugmented loader; every process takes its share of the batches."""
    device = fabric.device
    confusion = torch.zeros(num_classes * num_classes + 1, dtype=torch.int64, device=device)
    loss = torch.zeros((), device=device)
    was_training = network.training
    network.eval()
    for batch in loader.epoch(0):
        with fabric.autocast():
            logits = torch.cat(
                [network(part) for part in in_parts(laid_out(normalise(batch.images), network))]
            ).float()
        counted = batch.weights > 0
        cells = torch.where(
            counted, batch.labels * num_classes + logits.argmax(dim=1), num_classes * num_classes
        )
        confusion += torch.bincount(cells, minlength=len(confusion))
        loss += (nn.functional.cross_entropy(logits, batch.labels, reduction="none") * batch.weights).sum()
    network.train(was_training)
    counts = sum_over_processes(fabric, confusion)[:-1].view(num_classes, num_classes)
    total = int(counts.sum())
    if total == 0:
        raise PreceptorError("there are no samples to evaluate on; give a test set")
    mean = float(sum_over_processes(fabric, loss)) / total
    return Evaluation(tuple(tuple(row) for row in counts.tolist()), mean)


@torch.no_grad()
def feature_means(
    network: nn.Module, loader: Any, normalise: Callable[[Tensor], Tensor], num_classes: int
) -> Tensor:
    """Each class's mean feature over an unaugmented loader: (C, d). All features at once need not fit."""
    sums, counts = torch.zeros(0), torch.zeros(num_classes, dtype=torch.int64)
    for batch in loader.epoch(0):
        counted = batch.weights > 0
        inputs = in_parts(laid_out(normalise(batch.images), network))
        found = torch.cat([network.outputs(part).features for part in inputs])[counted]  # type: ignore[operator]
        features, labels = found.float().cpu().double(), batch.labels[counted].cpu()
        sums = sums if len(sums) else features.new_zeros(num_classes, features.shape[1])
        sums.index_add_(0, labels, features)
        counts += torch.bincount(labels, minlength=num_classes)
    return (sums / counts[:, None]).float()
