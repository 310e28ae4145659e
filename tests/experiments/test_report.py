from __future__ import annotations

import json

import numpy as np
import pytest
from experiments.assessments import repeatability
from experiments.book import Book, Sample, table
from experiments.glance import TABLES, gains_table
from experiments.items import ITEMS, fig05, fig06, fig07, fig07_repeats, fig10, seen, tab08
from experiments.items.fig07_paper import PEARSON, TASKS
from experiments.jobs import PAPER

from experiments import report, results
from preceptor.metrics.quality import pearson
from tests.experiments.made_up import figure_five, score_rows, write


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


@pytest.mark.parametrize("name", TABLES)
def test_the_small_tables_on_other_pages_are_what_the_rows_say(name, tmp_path):
    page, make = TABLES[name]
    written = (results.ROOT / "docs" / page).read_text()
    copy = tmp_path / page
    copy.write_text(written)
    results.put(name, make(Book()), copy)
    assert copy.read_text() == written, "run python experiments/report.py"
