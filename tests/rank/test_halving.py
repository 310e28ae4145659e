"""The pre-filter on simulated zoos: it must keep the winner and save forward passes."""

import numpy as np
import pytest

from preceptor.metrics.leep import leep
from preceptor.rank.confidence import half_samples
from preceptor.rank.halving import Prefilter, Round, round_sizes, successive_halving, upper_bounds

CLASSES, TEACHER_CLASSES, SAMPLES, TEACHERS = 6, 8, 2400, 40


class SimulatedZoo:
    """Teachers whose logits follow the task's classes more or less clearly; every score is a real LEEP."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.labels = self.random.permutation(np.arange(SAMPLES) % CLASSES)
        self.names = [f"t{i}" for i in range(TEACHERS)]
        quality = self.random.beta(1.2, 2.5, size=TEACHERS) * 3
        signal = self.random.standard_normal((TEACHERS, CLASSES, TEACHER_CLASSES)).astype(np.float32)
        noise = self.random.standard_normal((TEACHERS, SAMPLES, TEACHER_CLASSES), dtype=np.float32)
        self.logits = quality[:, None, None].astype(np.float32) * signal[:, self.labels] + noise
        self.full = {name: self.score(i, np.arange(SAMPLES)) for i, name in enumerate(self.names)}
        self.winner = max(self.full, key=self.full.__getitem__)

    def score(self, teacher: int, rows: np.ndarray) -> float:
        return leep(logits=self.logits[teacher, rows], labels=self.labels[rows])

    def evaluate(self, names, size):
        sample = np.arange(size)  # the labels are in random order
        halves = half_samples(self.labels[sample], 8, seed=0)
        indices = [self.names.index(name) for name in names]
        scores = np.array([self.score(i, sample) for i in indices])
        return scores, np.array([[self.score(i, half) for i in indices] for half in halves])


def test_same_winner_in_95_of_100_simulated_zoos_at_far_fewer_forward_passes():
    same, saved = 0, []
    sizes = list(round_sizes(SAMPLES, CLASSES))
    for seed in range(100):
        zoo = SimulatedZoo(seed)
        result = successive_halving(zoo.names, zoo.evaluate, sizes)
        same += zoo.winner in result.survivors
        saved.append(result.saved_fraction(SAMPLES))
    assert same >= 95
    assert np.mean(saved) > 0.8, f"only {np.mean(saved):.2f} of the forward passes saved"


def test_a_close_race_is_not_decided_by_halving_alone():
    random = np.random.default_rng(0)

    def evaluate(names, size):
        return random.normal(0, 1e-3, len(names)), random.normal(0, 1.0, (8, len(names)))

    names = [f"t{i}" for i in range(20)]
    assert successive_halving(names, evaluate, [100, 300]).survivors == tuple(names)


def test_clear_losers_leave_with_a_reason_and_the_better_half_stays():
    def evaluate(names, size):
        scores = 1 - np.array([float(name[1:]) for name in names])
        return scores, np.stack([scores + 0.01 * j for j in range(8)])

    result = successive_halving([f"t{i}" for i in range(16)], evaluate, [100, 300, 900], eta=2)
    assert result.survivors == ("t0", "t1", "t2")
    assert [(r.entered, r.left) for r in result.rounds] == [(16, 8), (8, 4), (4, 1)]
    assert result.ruled_out["t15"] == (
        "ruled out by the pre-filter in round 1: -14 on 100 samples, where the leader has 1"
    )


def test_a_teacher_without_a_score_stays_for_the_full_ranking_to_explain():
    def evaluate(names, size):
        scores = np.array([np.nan if name == "broken" else -float(name) for name in names])
        return scores, np.stack([scores] * 8)

    result = successive_halving(["broken", *map(str, range(12))], evaluate, [100])
    assert "broken" in result.survivors
    assert "11" in result.ruled_out


def test_the_bound_allows_for_noise_and_for_a_drift_with_the_sample_size():
    scores = np.array([0.0, -1.0, -1.0, -1.0])
    halves = np.array([[0.0, -1.0, -2.0, -1.0 - 0.5], [0.0, -1.0, -2.0, -1.0 + 0.5]])
    bounds = upper_bounds(scores, halves, quantile=2.0)
    np.testing.assert_allclose(bounds[1:3], [-1.0, 0.0])  # steady: its distance; drifting by 1: allowed 1
    # Its own variance, 0.5, not pulled down towards the others' zero.
    np.testing.assert_allclose(bounds[3], -1 + 2 * np.sqrt(0.5))


def test_saved_fraction_counts_every_forward_pass():
    result = Prefilter(("a",), {"b": "", "c": "", "d": ""}, (Round(100, 4, 2), Round(300, 2, 1)))
    assert result.saved_fraction(1000) == pytest.approx(1 - (400 + 600 + 1000) / 4000)
    assert Prefilter(()).saved_fraction(1000) == 0


def test_rounds_start_with_some_samples_a_class_and_leave_a_saving():
    assert list(round_sizes(10_000, 10)) == [96, 288, 864, 2592]
    assert list(round_sizes(10_000, 100)) == [800, 2400]
    assert list(round_sizes(200, 10)) == []
