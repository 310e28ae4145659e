from __future__ import annotations

import json
import re
from statistics import mean

import numpy as np
import pytest
from experiments.assessments import repeatability
from experiments.bars import MISSED, REACHED, UNKNOWN, assessment, few_labels, new_images, overlaps
from experiments.book import Book, Sample, table
from experiments.glance import gains_table
from experiments.items import ITEMS, few, fig05, fig06, fig07, fig07_repeats, fig10, seen, tab08
from experiments.items.fig07_paper import PEARSON, TASKS
from experiments.jobs import PAPER
from experiments.schedule import PATIENT, PLAIN
from experiments.summary import in_short

from experiments import report, results
from preceptor.metrics.quality import pearson


def write(folder, experiment, jobs_and_accuracies):
    lines = [json.dumps({**job.identity(), "options": job.settings(), "accuracy": accuracy}) for job, accuracy in
             jobs_and_accuracies]  # fmt: skip
    (folder / f"{experiment}.jsonl").write_text("\n".join(lines) + "\n")


def figure_five(gain, seeds=(0, 1, 2)):
    return [
        (job, 0.7 + 0.001 * seed + (gain(task, seed) if job.method == "sinkhorn" else 0))
        for task in range(6)
        for seed in seeds
        for job in fig05.setting(PAPER, "cifar100", "wrn-16-1", task, seed)
        if job.name in ("none", "sinkhorn")
    ]


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
    assert tuple(bar.verdict for bar in few_labels(Book(tmp_path))) == (*verdicts, UNKNOWN, UNKNOWN)


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


@pytest.mark.parametrize(
    ("plain", "patient", "taught", "verdict"),
    [(0.20, 0.20, 0.24, MISSED), (0.30, 0.20, 0.30, MISSED), (0.24, 0.20, 0.30, REACHED)],
)
def test_the_patient_recipe_is_judged_by_the_better_student_alone(tmp_path, plain, patient, taught, verdict):
    accuracy = {(PLAIN, "none"): plain, (PATIENT, "none"): patient, (PATIENT, "sinkhorn"): taught}
    some = [job for recipe in (PLAIN, PATIENT) for task in (0, 2, 5) for seed in (0, 1, 2)
            for job in few.setting(PAPER, "cifar100", 25, task, seed, 0, recipe)]  # fmt: skip
    write(
        tmp_path, "few", [(job, accuracy[key]) for job in some if (key := (job.recipe, job.name)) in accuracy]
    )
    assert [bar.verdict for bar in few_labels(Book(tmp_path))][2] == verdict


def score_rows(scores, accuracies):
    return [{"data": "cifar100", "per_class": None, "task": task, "teacher": "wrn-40-2", "teacher_task": place,
             "teacher_epochs": 60, "accuracy": accuracy,
             "scores": {name: values[place] for name, values in scores.items()}}
            for task in range(6) for place, accuracy in enumerate(accuracies)]  # fmt: skip


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


def test_rows_of_one_teacher_and_task_are_merged():
    first, second = (
        score_rows({"leep": [1.0, 2.0]}, [0.7, 0.8]),
        score_rows({"bridge": [3.0, 4.0]}, [0.7, 0.8]),
    )
    merged = fig07.merged(first + second)
    assert len(merged) == len(first)
    assert [row["scores"] for row in merged[:2]] == [
        {"leep": 1.0, "bridge": 3.0},
        {"leep": 2.0, "bridge": 4.0},
    ]


def test_scores_of_a_teacher_that_was_trained_anew_replace_the_earlier_ones():
    first = score_rows({"leep": [1.0, 2.0], "nce": [1.0, 2.0]}, [0.7, 0.8])
    second = [{**row, "teacher_weights": "anew"} for row in score_rows({"leep": [3.0, 4.0]}, [0.6, 0.9])]
    merged = fig07.merged(first + second)
    assert [(row["scores"], row["accuracy"]) for row in merged[:2]] == [
        ({"leep": 3.0}, 0.6),
        ({"leep": 4.0}, 0.9),
    ]


def test_regret_is_in_points_of_accuracy():
    rows = score_rows({"sinkhorn": [1.0, 4.0, 3.0]}, [0.70, 0.71, 0.74])
    assert fig07.quality(rows, "sinkhorn")["regret"] == pytest.approx(3.0)


def test_a_second_training_says_what_a_metric_can_reach():
    same, other, opposite = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    alike = repeatability([same, same], [same, other])
    assert (alike["low"], alike["high"], alike["mean"]) == pytest.approx((0.8, 1.0, 0.9))
    assert (alike["ceiling"], alike["of_both"]) == pytest.approx((0.9**0.5, (1.8 / 1.9) ** 0.5))
    assert repeatability([same], [opposite])["ceiling"] == 0


def test_metrics_are_held_against_the_mean_of_two_trainings(tmp_path):
    """Scores are found by their teachers, whatever the order of their rows; a task trained once is left out."""
    lines = [fig07.setting(PAPER, "cub200", task) for task in (0, 1)]
    first, second = np.linspace(0.3, 0.4, 11), np.linspace(0.4, 0.3, 11) + 0.05 * (np.arange(11) == 4)
    found = [(job, value) for values in (first, second) for job, value in zip(lines[0], values, strict=True)]
    write(tmp_path, "fig07", [*found, *((job, 0.5) for job in lines[1])])
    scores = [
        {"data": "cub200", "per_class": None, "task": job.task, "teacher": job.teacher.arch,
         "teacher_task": job.teacher.task, "teacher_epochs": 200, "accuracy": 0.5,
         "scores": {"right": float(place == 4), "wrong": float(place != 4)}}
        for line in lines for place, job in reversed(list(enumerate(line[:-1])))
    ]  # fmt: skip
    book = Book(tmp_path)
    assert list(fig07_repeats.repeats(book, lines)) == [0]
    text = fig07_repeats.section(book, lines, scores, ("right", "wrong"))
    assert "on 1 task teachers and students were all trained anew" in text
    assert "`right` 1.00, `wrong` -1.00. Regrets: `right` 0.00, `wrong` 2.50." in text
    assert fig07_repeats.section(book, lines[1:], scores, ("right",)) == ""


def test_each_training_of_a_student_is_held_against_its_own_student_alone(tmp_path):
    line = fig07.setting(PAPER, "cub200", 0)
    write(tmp_path, "fig07", [(job, base + (0.01 if job.method == "none" else 0.04)) for base in (0.3, 0.5)
                              for job in line])  # fmt: skip
    text = fig07._gains(Book(tmp_path), "cub200", None)
    assert "20 of 20 students gained, 3.0 points in the mean." in text
    assert "| mobilenet-1.0 | +3.0 ± 0.0 (2) |" in text


def test_a_training_in_which_a_student_diverged_does_not_count(tmp_path):
    line = fig07.setting(PAPER, "cub200", 0)
    trainings = ([0.30] * 11, [0.31] * 10 + [0.30], [None] + [0.5] * 10, [0.32] * 10 + [0.30])
    write(tmp_path, "fig07", [pair for values in trainings for pair in zip(line, values, strict=True)])
    book = Book(tmp_path)
    assert fig07_repeats.repeats(book, [line])[0].tolist() == [[0.31] * 10, [0.32] * 10]  # the last two
    assert "20 of 39 students gained" in fig07._gains(book, "cub200", None)


def test_images_that_were_seen_stand_beside_others(tmp_path):
    found = [(job, 0.5 + 0.02 * (job.method == "sinkhorn") * (job.data == seen.UNSEEN)) for job in seen.jobs(PAPER)
             if job.task != 3]  # fmt: skip
    write(tmp_path, "seen", found)
    page = seen.section(Book(tmp_path), tmp_path)
    assert "| seen, `sinkhorn` | +0.0 ± 0.0 (3) | +0.0 ± 0.0 (3) | +0.0 ± 0.0 (3) | not run yet | – |" in page
    assert (
        "| not seen, `sinkhorn` | +2.0 ± 0.0 (3) | +2.0 ± 0.0 (3) | +2.0 ± 0.0 (3) | not run yet | +2.0"
        in page
    )
    assert (tmp_path / "seen.png").exists()


def test_the_papers_columns_give_its_correlations():
    for name, printed in PEARSON.items():
        for task, value in zip(TASKS, printed, strict=False):
            if name in ("logme", "sinkhorn"):
                assert pearson(task[name], task["accuracy"]) == pytest.approx(value, abs=0.035)
    assert all(len(column) == 10 for task in TASKS for column in task.values())


def test_the_papers_mean_gain_is_the_bars():
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    gains = [
        fig05.said("cifar100", "wrn-16-1", s, "sinkhorn") - fig05.said("cifar100", "wrn-16-1", s, "none")
        for s in shares
    ]
    assert sum(gains) / 6 == pytest.approx(1.71, abs=0.01)
    assert fig05.said("cub200", "mobilenet-1.0", 0.25, "refilled") == 75.09


def test_numbers_are_shown_with_spread_and_count():
    assert Sample((0.68, 0.70)).shown() == "69.00 ± 1.41 (2)"
    assert Sample((0.68,)).shown() == "68.00 (1)"
    assert Sample(()).shown() == "not run yet"
    assert Sample((0.02, 0.04)).error == pytest.approx(0.01)
    assert table(["a", "b"], [["x", 1]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_gains_are_shown_with_the_error_of_their_mean_where_there_is_one():
    assert Sample((0.02, 0.04)).gain() == "+3.00 ± 1.00"
    assert Sample((-0.02,)).gain(1) == "-2.0"


def test_the_small_table_says_where_seeds_are_fewer_than_three(tmp_path):
    for seeds, cell in (((0, 1, 2), "| +3.0 ± 0.6 |"), ((0, 1), "| +2.5 ± 0.5 (2) |"), ((0,), "")):
        write(tmp_path, "fig05", figure_five(lambda task, seed: 0.02 + 0.01 * seed, seeds))
        lines = [
            line
            for line in gains_table(Book(tmp_path)).splitlines()
            if "500 images a class, `sinkhorn`" in line
        ]
        assert [cell in line for line in lines] == [True] * bool(cell)


def test_a_metric_that_ties_has_not_found_the_own_domain():
    domains = ["birds", "cars", "dogs"]
    pairs = [(teacher, task) for teacher in domains for task in domains]
    scores = {(a, b): {"ties": 0.0, "finds": float(a == b)} for a, b in pairs}
    lines = fig10._choices(domains, scores, {pair: 0.5 + 0.1 * place for place, pair in enumerate(pairs)})
    assert "| ties | 0 of 3 |" in lines
    assert "| finds | 3 of 3 |" in lines


def test_teachers_of_two_trainings_are_named(tmp_path):
    row = {"arch": "wrn-40-2", "data": "cifar100", "task": 0, "epochs": 200, "friend": None}
    rows = [{**row, "accuracy": accuracy, "evidence": {"commit": commit}} for accuracy, commit in
            ((0.80, "a" * 40), (0.81, "b" * 40))]  # fmt: skip
    for count in (1, 2):
        (tmp_path / "teachers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows[:count]))
        page = report.page(Book(tmp_path), tmp_path / "figures")
        told = "| cifar100, task 1, wrn-40-2 | 80.0 | 81.0 |"
        assert (told in page) == (count == 2)


def test_how_good_the_teachers_are_is_told(tmp_path):
    assert fig07.reached(Book(tmp_path), "cub200", 200) == ""
    found = (
        ("mobilenet-1.0", 200, 0.371),
        ("resnet-18", 200, 0.402),
        ("resnet-18", 60, 0.9),
        ("wrn-16-2", 200, 0.1),
    )
    rows = [{"arch": arch, "data": "cub200", "task": 0, "epochs": epochs, "accuracy": accuracy}
            for arch, epochs, accuracy in found]  # fmt: skip
    (tmp_path / "teachers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert (
        fig07.reached(Book(tmp_path), "cub200", 200)
        == " The teachers reach 37 to 40 % on their own test images."
    )


def test_gains_are_taken_within_seeds(tmp_path):
    write(tmp_path, "fig05", figure_five(lambda task, seed: 0.01 * seed))
    some = fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, 2)
    ours, alone = ([job for job in some if job.name == name] for name in ("sinkhorn", "none"))
    assert Book(tmp_path).gains(ours, alone).values == pytest.approx((0.02,))
    other = fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, 1)
    assert Book(tmp_path).gains(ours, [job for job in other if job.name == "none"]).values == ()


def test_shorter_trainings_are_shown_where_there_are_no_others(tmp_path):
    from dataclasses import replace

    scale = replace(PAPER, epochs=60, teacher_epochs=100)
    jobs = [job for job in fig05.setting(scale, "cifar100", "wrn-16-1", 0, 0) if job.name == "none"]
    write(tmp_path, "fig05", [(job, 0.5) for job in jobs])
    assert Book(tmp_path).scale_of("fig05").epochs == 60
    assert "50.00 (1)" in fig05.section(Book(tmp_path), tmp_path)


def test_tables_without_a_number_of_ours_are_a_line():
    empty = "| {} | 100% |\n| --- | ---: |\n| none | 71.56 / not run yet |\n| kd | – |"
    some = "| wrn-16-1 | 100% |\n| --- | ---: |\n| none | 71.56 / 73.24 (1) |\n| kd | not run yet |"
    section = "\n\n".join(["Words.", some, empty.format("wrn-16-2"), empty.format("wrn-40-1"), "More words."])
    kept = some.rpartition("\n")[0]
    lines = ["*not run yet, above: kd*", "*not run yet: wrn-16-2; wrn-40-1*"]
    assert report.folded(section) == "\n\n".join(["Words.", kept, *lines, "More words."])


def test_columns_without_a_number_are_named_below_the_table():
    section = (
        "| cifar100 | 10 | 25 | 50 |\n| --- | ---: | ---: | ---: |\n"
        "| none | not run yet | 28.79 (3) | – |\n| kd | not run yet | not run yet | – |"
    )
    assert report.folded(section) == (
        "| cifar100 | 25 | 50 |\n| --- | ---: | ---: |\n| none | 28.79 (3) | – |\n\n"
        "*not run yet, above: 10; kd*"
    )


def test_experiments_without_rows_are_one_list_at_the_end(tmp_path):
    write(tmp_path, "fig05", figure_five(lambda task, seed: 0.02, seeds=(0,)))
    # Rows that do not count leave a section without a number.
    (tmp_path / "tab13.jsonl").write_text(json.dumps({"metric": "nce", "seconds": [1.0]}) + "\n")
    before, _, last = report.page(Book(tmp_path), tmp_path / "figures").partition("\n## Not run yet\n\n")
    sections = [line for line in before.splitlines() if line.startswith("## ")]
    assert sections == ["## Bars", "## Where the numbers come from", f"## {fig05.TITLE}"]
    listed = [name for name in report.ORDER if name != "fig05"]
    assert last == "".join(f"- {ITEMS[name].TITLE}: `python experiments/run.py {name}`\n" for name in listed)
    assert "Set before the runs, from the paper's own figures" in before


def test_a_reference_of_another_experiment_is_no_row(tmp_path):
    alone = tab08.references(PAPER, "cifar100", "wrn-16-1")["none"]
    write(tmp_path, alone[0].experiment, [(job, 0.7) for job in alone])
    page = report.page(Book(tmp_path), tmp_path / "figures")
    assert f"## {fig06.TITLE}" not in page
    assert f"- {fig06.TITLE}: `python experiments/run.py fig06`" in page


def test_the_page_in_the_docs_is_what_the_rows_say(tmp_path):
    written = (results.ROOT / "docs" / "results.md").read_text()
    assert report.page(Book(), tmp_path / "figures") == written, "run python experiments/report.py"
