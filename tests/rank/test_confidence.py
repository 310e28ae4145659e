import numpy as np
import pytest

from preceptor.rank.confidence import bootstrap_first, half_samples, halves_first


def test_equal_teachers_are_first_by_chance_and_a_better_one_always():
    random = np.random.default_rng(0)
    labels = np.arange(400) % 4
    one, two = random.normal(size=(2, 400))
    one, two = one - one.mean(), two - two.mean()
    chances = bootstrap_first({"a": one, "b": two}, labels, seed=1)
    assert chances["a"] == pytest.approx(0.5, abs=0.06)
    assert sum(chances.values()) == pytest.approx(1)
    assert bootstrap_first({"a": one, "b": two + 1}, labels)["b"] == 1.0


def test_bootstrap_is_paired_and_agrees_with_the_normal_approximation():
    random = np.random.default_rng(1)
    labels = np.zeros(500, dtype=int)
    common = random.normal(size=500) * 10  # instances that are hard for everyone say nothing about the order
    difference = random.normal(size=500)
    difference += 0.05 - difference.mean()
    chances = bootstrap_first({"a": common + difference, "b": common}, labels, resamples=4000)
    from scipy.stats import norm

    expected = norm.cdf(0.05 / (difference.std() / np.sqrt(500)))
    assert chances["a"] == pytest.approx(expected, abs=0.03)


def test_bootstrap_is_stratified():
    # The teachers differ only in how they score the two classes; with the counts fixed there is no doubt.
    labels = np.array([0] * 50 + [1] * 50)
    step = np.where(labels == 0, 1.0, -1.0)
    assert bootstrap_first({"a": step + 0.01, "b": -step}, labels)["a"] == 1.0


def test_bootstrap_repeats_and_does_not_depend_on_the_chunking(monkeypatch):
    random = np.random.default_rng(2)
    labels = np.arange(60) % 3
    values = {name: random.normal(size=60) for name in "abc"}
    first = bootstrap_first(values, labels, seed=5)
    assert first == bootstrap_first(values, labels, seed=5)
    monkeypatch.setattr("preceptor.rank.confidence.CHUNK", 600)
    assert bootstrap_first(values, labels, seed=5) == pytest.approx(first, abs=0.08)


def test_half_samples_are_stratified_halves_without_repetition():
    labels = np.array([0] * 10 + [1] * 5 + [2])
    halves = half_samples(labels, 40, seed=3)
    for half in halves:
        assert len(np.unique(half)) == len(half)
        counts = np.bincount(labels[half], minlength=3)
        assert counts[0] == 5
        assert counts[1] in (2, 3)
        assert counts[2] == 1
    np.testing.assert_array_equal(halves[7], half_samples(labels, 40, seed=3)[7])
    assert len({tuple(half) for half in halves}) > 30


def test_the_spread_over_halves_is_the_standard_error():
    values = np.random.default_rng(4).normal(size=1000)
    labels = np.zeros(1000, dtype=int)
    means = [values[half].mean() for half in half_samples(labels, 400, seed=0)]
    assert np.std(means) == pytest.approx(values.std() / np.sqrt(1000), rel=0.15)


def test_halves_first_counts_wins_and_a_missing_score_never_wins():
    chances = halves_first({"a": np.array([1.0, 2.0, 3.0, 0.0]), "b": np.array([0.0, 1.0, np.nan, 1.0])})
    assert chances == {"a": 0.75, "b": 0.25}


def test_equal_teachers_share_their_wins():
    random = np.random.default_rng(0)
    values, labels = random.normal(size=31), np.arange(31) % 3
    twins = {"a": values, "worse": values - 1, "b": values.copy(), "c": values.copy()}
    assert bootstrap_first(twins, labels) == pytest.approx({"a": 1 / 3, "worse": 0, "b": 1 / 3, "c": 1 / 3})
    halves = np.array([1.0, 2.0, 3.0, 4.0])
    assert halves_first({"a": halves, "b": halves, "worse": halves - 1}) == {"a": 0.5, "b": 0.5, "worse": 0}
