"""Choosing samples of a split: by positions, by a mask, and what is refused."""

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.data import Task

LABELS = np.array([0, 1, 2, 2, 1, 2])


@pytest.fixture
def split():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    return Task.from_arrays(x, LABELS, x, LABELS).train


MASKS = [LABELS == 2, torch.from_numpy(LABELS == 2), (LABELS == 2).tolist()]


@pytest.mark.parametrize("chosen", [*MASKS, [2, 3, 5], torch.tensor([2, 3, 5]), np.array([2.0, 3.0, 5.0])])
def test_a_mask_and_positions_take_the_same_samples(split, chosen):
    part = split.select(chosen)
    np.testing.assert_array_equal(part.labels, [2, 2, 2])
    wanted = torch.tensor([[4.0, 5.0], [6.0, 7.0], [10.0, 11.0]])
    torch.testing.assert_close(part.load(slice(None)), wanted)
    torch.testing.assert_close(split.load(chosen), wanted)


def test_nothing_and_slices_can_be_chosen(split):
    assert len(split.select([])) == len(split.select(LABELS > 5)) == 0
    assert split.load([]).shape == (0, 2)
    np.testing.assert_array_equal(split.select(slice(1, 4)).labels, [1, 2, 2])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([True, False], r"a mask of shape \(2,\) came; expected \(6,\), one entry for each sample"),
        (np.ones((6, 1), dtype=bool), r"a mask of shape \(6, 1\) came"),
        (
            [0.5, 1.0],
            "indices of float64 came that are no whole numbers; give positions from 0 to 5, or a mask",
        ),
        ([np.nan, 1.0], "no whole numbers"),
        ([np.inf], "no whole numbers"),
        (["0", "1"], "indices of <U1 came"),
    ],
)
def test_what_is_neither_is_refused(split, chosen, message):
    for take in (split.select, split.load):
        with pytest.raises(PreceptorError, match=message):
            take(chosen)
