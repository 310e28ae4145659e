import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data.subsets import hold_out, take_per_class, take_stratified

sizes = st.lists(st.integers(2, 30), min_size=2, max_size=6)


def labels_for(counts, seed=0):
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(seed).permutation(labels), tuple(f"class {i}" for i in range(len(counts)))


@given(counts=sizes, fraction=st.floats(0.05, 0.95), seed=st.integers(0, 5))
def test_hold_out_parts_every_class(counts, fraction, seed):
    labels, keys = labels_for(counts)
    kept, held = hold_out(labels, fraction, seed, keys)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    for label, count in enumerate(counts):
        share = (labels[held] == label).sum()
        assert 1 <= share <= count - 1
        assert abs(share - fraction * count) <= 1


@given(counts=sizes, data=st.data())
def test_stratified_sample_is_in_proportion(counts, data):
    labels, keys = labels_for(counts)
    count = data.draw(st.integers(len(counts), len(labels)))
    rows = take_stratified(labels, count, 0, keys)
    assert len(set(rows.tolist())) == count
    got = np.bincount(labels[rows], minlength=len(counts))
    assert (got >= 1).all()
    exact = np.array(counts) * count / sum(counts)
    assert (got - exact < 1 + (exact < 1)).all()


def test_smaller_choices_are_part_of_larger_ones_and_depend_on_the_seed():
    labels, keys = labels_for([50, 50, 50])
    few, many = take_per_class(labels, 5, 1, keys), take_per_class(labels, 20, 1, keys)
    assert np.bincount(labels[few]).tolist() == [5, 5, 5]
    assert set(few) < set(many)
    assert set(few) != set(take_per_class(labels, 5, 2, keys))
    assert len(take_per_class(labels, 500, 1, keys)) == 150


def test_a_class_is_parted_the_same_way_whatever_the_other_classes():
    labels, keys = labels_for([20, 20, 20])
    held = hold_out(labels, 0.3, 4, keys)[1]
    alone = np.where(labels == 2, 0, np.where(labels == 0, 1, -1))
    others = hold_out(alone, 0.3, 4, (keys[2], keys[0]))[1]
    assert set(held[labels[held] != 1]) == set(others)


def test_wrong_choices():
    labels, keys = labels_for([3, 3])
    with pytest.raises(PreceptorError, match="use 2 or more"):
        take_stratified(labels, 1, 0, keys)
    with pytest.raises(PreceptorError, match="use 1 or more"):
        take_per_class(labels, 0, 0, keys)
    with pytest.raises(PreceptorError, match="between 0 and 1"):
        hold_out(labels, 1.0, 0, keys)
    with pytest.raises(PreceptorError, match="'class 1' has 1 sample, too few"):
        hold_out(np.array([0, 0, 1]), 0.5, 0, keys)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_a_seed_that_no_generator_takes_is_refused_in_a_sentence(seed):
    task = Task("glyphs:digits?per_class=3&test_per_class=1")
    sentence = re.escape(f"seed {seed!r} came; expected a whole number of 0 or more")
    for choose in (task.sample, task.per_class):
        with pytest.raises(PreceptorError, match=sentence):
            choose(20, seed=seed)
    with pytest.raises(PreceptorError, match=sentence):
        task.split_validation(0.3, seed=seed)
    assert len(task.sample(20, seed=np.int64(3)).train) == 20
