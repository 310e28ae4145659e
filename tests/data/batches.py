"""Batches of a loader, gathered and compared."""

import torch


def batches(loader, epoch=0, start=0):
    return list(loader.epoch(epoch, start_step=start))


def assert_same(first, second):
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        for name in ("images", "labels", "indices", "weights"):
            torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=0, atol=0)
