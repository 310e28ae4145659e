"""What the page of results says at its top: the summary and the bars."""

from __future__ import annotations

import json
import re
from statistics import mean

import pytest
from experiments.bars import (
    MISSED,
    REACHED,
    UNKNOWN,
    assessment,
    few_labels,
    mixed_images,
    new_images,
    overlaps,
)
from experiments.book import Book
from experiments.items import few, fig05, fig07, fig10, seen
from experiments.jobs import PAPER
from experiments.schedule import PATIENT, PATIENT_EARLY, PLAIN
from experiments.summary import in_short

from tests.experiments.made_up import figure_five, mixed_early, score_rows, write


@pytest.mark.parametrize(
    ("gain", "seeds", "verdicts"),
    [
        (lambda task, seed: 0.02 + 0.001 * seed, (0, 1, 2), (REACHED, REACHED)),
        (lambda task, seed: 0.01 + 0.001 * seed, (0, 1, 2), (REACHED, MISSED)),
        (
            lambda task, seed: 0.04 * (seed - 0.5),
            (0, 1, 2),
            (MISSED, REACHED),
        ),  # the mean is high, the error too
        (lambda task, seed: -0.001 if task == 5 else 0.03, (0, 1, 2), (MISSED, REACHED)),
        (lambda task, seed: 0.0 if task == 5 else 0.03, (0, 1, 2), (REACHED, REACHED)),
        (lambda task, seed: 0.02, (0, 1), (UNKNOWN, UNKNOWN)),
    ],
)
def test_the_bar_of_figure_five(tmp_path, gain, seeds, verdicts):
    write(tmp_path, "fig05", figure_five(gain, seeds))
    assert tuple(bar.verdict for bar in overlaps(Book(tmp_path))) == verdicts


@pytest.mark.parametrize(
    ("gain", "seeds", "verdict"),
    [
        (0.02, (0, 1, 2), REACHED),
        (0.01, (0, 1, 2), MISSED),
        (-0.01, (0, 1, 2), MISSED),
        (0.02, (0, 1), UNKNOWN),
    ],
)
def test_the_bar_on_mixed_images_asks_for_both_bars_of_figure_five(tmp_path, gain, seeds, verdict):
    rows = [*figure_five(lambda task, seed: 0.5), *mixed_early(lambda task: 0.1, lambda task: gain, seeds)]
    write(tmp_path, "fig05", rows)
    (bar,) = mixed_images(Book(tmp_path))
    assert bar.verdict == verdict
    assert ("by the paper's training by 100%: +10.00 ± 0.00 (3)" in bar.detail) == (len(seeds) == 3)


def test_the_summary_tells_mixing_and_the_teacher_apart(tmp_path):
    rows = [
        *figure_five(lambda task, seed: 0.5),
        *mixed_early(lambda task: 0.01 * task, lambda task: 0.002 * task),
    ]
    write(tmp_path, "fig05", rows)
    told = in_short(Book(tmp_path))
    assert "student alone was better by 0.0 to 5.0 points, 2.5 in the mean" in told
    assert "`sinkhorn` gained 0.0 to 1.0 on top of that, 0.5 in the mean. Together that is 3.0." in told


def test_the_summary_says_what_was_run_with_two_seeds(tmp_path):
    write(tmp_path, "fig05", figure_five(lambda task, seed: 0.01 + 0.002 * task + 0.001 * seed, seeds=(0, 2)))
    told = in_short(Book(tmp_path))
    assert "`sinkhorn` gained 1.1 to 2.1 points at the six overlaps of classes, 1.6 in the mean." in told
    assert "The paper has 0.6 to 2.6, 1.7 in the mean." in told
    assert told.count("**") == 2, "the other sentences have no rows"
    (tmp_path / "one").mkdir()
    write(tmp_path / "one", "fig05", figure_five(lambda task, seed: 0.01, seeds=(0,)))
    assert in_short(Book(tmp_path / "one")) == ""


def test_the_summary_counts_the_teachers_of_other_domains_that_helped_for_certain(tmp_path):
    def accuracy(job):
        if job.method == "none" or job.teacher.data == job.data:
            return 0.5
        # One pair gains with each seed, the others now and then.
        return (
            0.51 + 0.001 * job.seed
            if (job.teacher.data, job.data) == ("cars", "dogs")
            else 0.5 + 0.01 * job.seed
        )

    write(tmp_path, "fig10", [(job, accuracy(job)) for job in fig10.jobs(PAPER)])
    told = in_short(Book(tmp_path))
    assert (
        "gained 1.0 to 1.1 points, 1.0 in the mean; in 1 of 20 pairs a gain can be told from chance." in told
    )


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (lambda task, seed: 0.02 + 0.001 * seed, REACHED),
        (lambda task, seed: 0.01 + 0.001 * seed, MISSED),  # in the mean
        (lambda task, seed: 0.03 * seed if task == 5 else 0.03, MISSED),  # 1.7 standard errors
        (lambda task, seed: None if (task, seed) == (5, 2) else 0.03, UNKNOWN),
    ],
)
def test_the_bar_of_new_images_does_not_look_at_seen_ones(tmp_path, gain, verdict):
    def accuracy(job):
        found = gain(job.task, job.seed) if job.data == seen.UNSEEN else -0.1
        return None if found is None else 0.6 + 0.001 * job.seed + (found if job.method == "sinkhorn" else 0)

    write(
        tmp_path, "seen", [(job, value) for job in seen.jobs(PAPER) if (value := accuracy(job)) is not None]
    )
    (bar,) = new_images(Book(tmp_path))
    assert bar.verdict == verdict
    assert (
        "with as many that it has seen 100%: -10.00 ± 0.00 (3), 60%: -10.00 ± 0.00 (3); new less"
        in bar.detail
    )
    more = f"{100 * (0.1 + mean(gain(2, seed) for seed in range(3))):+.2f}"
    assert re.search(rf"new less seen 100%: \{more} ± 0.0\d \(3\), 60%: \{more} ± 0.0\d \(3\)$", bar.detail)


def test_the_bar_of_figure_five_says_where_three_seeds_are_enough(tmp_path):
    # 5.2 and 3.5 standard errors: Student's t asks for 4.3.
    write(tmp_path, "fig05", figure_five(lambda task, seed: 0.02 if task else 0.03 + 0.01 * (seed - 1)))
    detail = overlaps(Book(tmp_path))[0].detail
    assert "100%: +3.00 ± 0.58 (3), 80%: +2.00 ± 0.00 (3)" in detail
    assert detail.endswith("at 100%, 80%, 60%, 40%, 20%, 0%")
    write(tmp_path, "fig05", figure_five(lambda task, seed: 0.02 if task else 0.02 + 0.01 * (seed - 1)))
    assert overlaps(Book(tmp_path))[0].detail.endswith("at 80%, 60%, 40%, 20%, 0%")


RIVALS = {"rkd": 0.01, fig05.GENTLE_RKD: 0.02, "refilled": 0.02}


@pytest.mark.parametrize(
    ("gains", "verdicts"),
    [
        ({"sinkhorn": 0.03, "sinkhorn+probe": 0.06, **RIVALS}, (REACHED, REACHED)),
        ({"sinkhorn": 0.03, "sinkhorn+probe": 0.06, **RIVALS, "refilled": 0.07}, (REACHED, MISSED)),
        ({"sinkhorn": 0.03, "sinkhorn+probe": 0.06, **RIVALS, fig05.GENTLE_RKD: 0.07}, (REACHED, MISSED)),
        ({"sinkhorn": 0.04, "sinkhorn+probe": 0.02, **RIVALS}, (MISSED, REACHED)),
        ({"sinkhorn": 0.06}, (REACHED, UNKNOWN)),
    ],
)
def test_the_bar_of_few_labels(tmp_path, gains, verdicts):
    some = [
        job
        for task in (0, 2, 5)
        for seed in (0, 1, 2)
        for job in few.setting(PAPER, "cifar100", 25, task, seed, 0)
    ]
    write(
        tmp_path,
        "few",
        [(j, 0.3 + {"none": 0.0, **gains}[j.name]) for j in some if j.name in {"none", *gains}],
    )
    assert tuple(bar.verdict for bar in few_labels(Book(tmp_path))) == (*verdicts, *(UNKNOWN,) * 4)


def test_a_rival_of_fewer_seeds_is_held_against_ours_on_those(tmp_path):
    ours, theirs = (
        (0.30, 0.30, 0.60),
        (0.35, 0.35),
    )  # the mean of all three is above, that of the first two below
    accuracy = {
        "none": (0.2,) * 3,
        "sinkhorn": ours,
        "rkd": theirs,
        fig05.GENTLE_RKD: theirs,
        "refilled": theirs,
    }
    some = [
        job
        for task in (0, 2, 5)
        for seed in (0, 1, 2)
        for job in few.setting(PAPER, "cifar100", 25, task, seed, 0)
    ]
    write(tmp_path, "few", [(job, accuracy[job.name][job.seed]) for job in some
                            if job.seed < len(accuracy.get(job.name, ()))])  # fmt: skip
    first, second, *_ = few_labels(Book(tmp_path))
    assert (first.verdict, second.verdict) == (REACHED, MISSED)
    assert "100%: +15.00 ± 0.00 (2), ours ahead by -5.00 ± 0.00 (2)" in second.detail


@pytest.mark.parametrize(("recipe", "place"), [(PATIENT, 2), (PATIENT_EARLY, 4)])
@pytest.mark.parametrize(
    ("plain", "to_the_end", "early", "taught", "verdict"),
    [
        (0.20, 0.20, 0.20, 0.24, MISSED),
        (0.30, 0.20, 0.20, 0.30, MISSED),
        (0.20, 0.26, 0.20, 0.30, MISSED),
        (0.20, 0.20, 0.26, 0.30, MISSED),
        (0.24, 0.24, 0.20, 0.30, REACHED),
    ],
)
def test_mixed_images_are_judged_by_the_best_student_alone(
    tmp_path, recipe, place, plain, to_the_end, early, taught, verdict
):
    accuracy = {
        (PLAIN, "none"): plain, (PATIENT, "none"): to_the_end, (PATIENT_EARLY, "none"): early,
        (recipe, "sinkhorn"): taught,
    }  # fmt: skip
    some = [job for kind in few.KINDS for task in (0, 2, 5) for seed in (0, 1, 2)
            for job in few.setting(PAPER, "cifar100", 25, task, seed, 0, kind)]  # fmt: skip
    write(
        tmp_path, "few", [(job, accuracy[key]) for job in some if (key := (job.recipe, job.name)) in accuracy]
    )
    bars = few_labels(Book(tmp_path))
    assert bars[place].verdict == verdict
    assert f"{100 * (taught - max(plain, to_the_end, early)):+.2f}" in bars[place].detail


def test_the_bars_of_the_metrics(tmp_path):
    accuracies = [0.70, 0.71, 0.72, 0.75]
    good, bad, worst = [1.0, 2.0, 3.0, 5.0], [3.0, 2.0, 1.0, 2.5], [4.0, 3.0, 2.0, 1.0]
    path = tmp_path / f"{fig07.SCORES}.jsonl"
    for ours, verdicts in ((good, (REACHED,) * 3), (worst, (MISSED,) * 3)):
        rows = score_rows({"sinkhorn": ours, "logme": bad, "leep": bad, "nce": bad}, accuracies)
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
        assert tuple(bar.verdict for bar in assessment(Book(tmp_path))) == (*verdicts, *(UNKNOWN,) * 3)
    later = score_rows({"bridge": good}, accuracies)  # a metric that came later has rows of its own
    with path.open("a") as file:
        file.write("\n".join(map(json.dumps, later)) + "\n")
    assert [bar.verdict for bar in assessment(Book(tmp_path))] == [MISSED] * 3 + [REACHED] * 3
    path.unlink()
    assert {bar.verdict for bar in assessment(Book(tmp_path))} == {UNKNOWN}


def test_the_papers_mean_gain_is_the_bars():
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    gains = [
        fig05.said("cifar100", "wrn-16-1", s, "sinkhorn") - fig05.said("cifar100", "wrn-16-1", s, "none")
        for s in shares
    ]
    assert sum(gains) / 6 == pytest.approx(1.71, abs=0.01)
    assert fig05.said("cub200", "mobilenet-1.0", 0.25, "refilled") == 75.09
