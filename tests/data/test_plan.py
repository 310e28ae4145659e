"""Which samples an epoch's batches hold, for one process or several."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from preceptor.data.plan import epoch_order, plan_epoch, seeded


def slots_that_count(shares):
    """Position -> slot of the rows that are no filling."""
    return {
        int(position): int(slot)
        for share in shares
        for position, slot, weight in zip(share.positions, share.slots, share.weights, strict=True)
        if weight
    }


@given(
    count=st.integers(1, 50),
    batch=st.integers(1, 20),
    world=st.integers(1, 5),
    full=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_no_sample_is_lost_or_doubled_whatever_the_ranks(count, batch, world, full, epoch):
    order = epoch_order(count, True, 0, epoch)
    plans = [plan_epoch(order, batch, full, rank, world) for rank in range(world)]
    alone = plan_epoch(order, batch, full, 0, 1)
    assert len({len(plan) for plan in plans}) == 1
    seen = []
    for step, single in enumerate(alone):
        shares = [plan[step] for plan in plans]
        assert len({len(share.positions) for share in shares}) == 1  # all ranks have as many rows
        real = slots_that_count(shares)
        assert real == slots_that_count([single])  # the same global batch, with the same random numbers
        assert sum(share.weights.sum() for share in shares) == len(real)
        seen += list(real)
        for share in shares:  # a filling row repeats what its slot holds
            for position, slot in zip(share.positions, share.slots, strict=True):
                assert single.positions[slot] == position
    assert sorted(seen) == list(range(count))
    if full:
        assert {len(single.positions) for single in alone} == {min(batch, count)}


def test_seeds_are_independent_of_each_other_and_fixed():
    numbers = {
        float(torch.rand(1, generator=seeded(*key)))
        for key in [(0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (-1, 0)]
    }
    assert len(numbers) == 6
    assert (
        torch.randperm(6, generator=seeded(0, 1, 2)).tolist()
        == torch.randperm(6, generator=seeded(0, 1, 2)).tolist()
    )
