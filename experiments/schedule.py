"""How long, in which batches and at which rate: the paper's training, and a rule for small training sets."""

from __future__ import annotations

import math
from dataclasses import dataclass

BATCHES = (256, 128, 64)
STEPS_AN_EPOCH = 39  # 10,000 images in batches of 256
MIN_STEPS = 4000
CIFAR_MILESTONES, CUB_MILESTONES = (0.25, 0.5, 0.75), (0.75, 0.85, 0.9)  # Sec. 6.1.2, as shares of the epochs


@dataclass(frozen=True)
class Recipe:
    """What may differ from the paper's training."""

    mixup: float = 0.0  # alpha of the Beta distribution
    mixup_until: float = 1.0  # share of the epochs after which images are left as they are
    patience: int = 1  # times the steps


PLAIN, PATIENT, PATIENT_EARLY = "plain", "patient", "patient-early"
MIXED, MIXED_EARLY = "mixed", "mixed-early"
RECIPES = {
    PLAIN: Recipe(),
    PATIENT: Recipe(mixup=1.0, patience=3),
    PATIENT_EARLY: Recipe(mixup=1.0, mixup_until=0.75, patience=3),
    MIXED: Recipe(mixup=1.0),
    MIXED_EARLY: Recipe(mixup=1.0, mixup_until=0.5),
}


@dataclass(frozen=True)
class Schedule:
    """SGD with steps in the learning rate."""

    epochs: int = 200
    batch_size: int = 256
    rate: float = 0.1
    factor: float = 0.2
    milestones: tuple[float, ...] = CIFAR_MILESTONES
    momentum: float = 0.9
    weight_decay: float = 5e-4
    mixup: float = 0.0  # alpha of the Beta distribution
    mixup_until: float = 1.0  # share of the epochs after which images are left as they are

    def mixes_at(self, epoch: int) -> bool:
        """Whether images are mixed up in an epoch."""
        return self.mixup > 0 and epoch < self.mixup_until * self.epochs

    def rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.rate * self.factor ** sum(epoch >= share * self.epochs for share in self.milestones)


def small_set(images: int, epochs: int, batch: int, recipe: str = PLAIN) -> tuple[int, int]:
    """(batch size, epochs) for a training set of any size.

    The rule: the largest of 256, 128 and 64 (not above the given batch) that leaves 39 steps an epoch, 64 where
    none does, never more than there are images; and as many epochs as asked for, or more where those would be
    under 4,000 steps. So ten images of each of 50 classes train for 572 epochs in batches of 64, 500 of each as
    in the paper. A short run (under 100 epochs asked for) is not lengthened. The patient recipe, which mixes images up
    (Zhang et al. 2018) so that the teacher is asked about ever new ones, takes three times the steps (Beyer et al.
    2022, "A good teacher is patient and consistent").
    """
    fitting = [size for size in BATCHES if size <= batch and images // size >= STEPS_AN_EPOCH]
    size = min(max(fitting) if fitting else min(BATCHES[-1], batch), images)
    steps = max(1, images // size)
    if epochs < 100:
        return size, epochs
    return size, max(epochs, math.ceil(MIN_STEPS / steps)) * RECIPES[recipe].patience
