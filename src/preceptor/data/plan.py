"""Which samples each step of an epoch sees, on which rank. Pure and seeded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Share:
    """One rank's part of one global batch."""

    positions: np.ndarray  # (rows,) which samples of the split
    weights: np.ndarray  # (rows,) 1, or 0 for a row that only fills the batch
    slots: np.ndarray  # (rows,) places in the global batch, by which its random numbers are dealt


def seeded(*key: int) -> torch.Generator:
    """A generator on the CPU for a key such as (seed, epoch) or (seed, epoch, step)."""
    state = np.random.SeedSequence(entropy=[len(key), *(value % 2**64 for value in key)]).generate_state(
        1, np.uint64
    )
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def epoch_order(count: int, train: bool, seed: int, epoch: int) -> np.ndarray:
    """The order of the samples in one epoch: shuffled for training, else as they are."""
    if not train:
        return np.arange(count)
    return torch.randperm(count, generator=seeded(seed, epoch)).numpy()


def plan_epoch(order: np.ndarray, batch_size: int, full: bool, rank: int, world_size: int) -> list[Share]:
    """Part an epoch into global batches, and take this rank's part of each.

    Every sample has weight 1 in exactly one row over all ranks. With `full` the last batch is filled up by
    samples from the epoch's begin with weight 0, so that shapes never change and batch statistics are never
    those of a few samples; without it only up to a multiple of the ranks.
    """
    count = len(order)
    batch = min(batch_size, count)
    shares = []
    for start in range(0, count, batch):
        real = min(batch, count - start)
        wide = batch if full else real
        rows = -(-wide // world_size)
        slots = np.arange(rank, rows * world_size, world_size)
        inside = slots % wide  # ranks beyond an uneven batch repeat its first rows
        shares.append(Share(order[(start + inside) % count], (slots < real).astype(np.float32), inside))
    return shares
