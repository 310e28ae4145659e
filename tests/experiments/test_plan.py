from __future__ import annotations

from dataclasses import replace

import pytest
from experiments.items import ITEMS, few, fig05
from experiments.jobs import PAPER, SMOKE
from experiments.plan import Pace, Part, packs

from experiments import schedule
from preceptor.distill import recipe


def never(job, stage):
    return False


def test_packs_hold_everything_once_and_no_two_stages_of_a_job():
    jobs = [job for job in ITEMS["fig05"].jobs(PAPER) if job.data == "cifar100"]
    found = packs(jobs, 16, never)
    parts = [part for pack in found for part in pack]
    assert len(parts) == len(set(parts)) == len(jobs) + sum(job.method == "refilled" for job in jobs)
    for pack in found:
        assert len(pack) <= 16
        assert len({part.job.group for part in pack}) == 1
        assert len({part.job for part in pack}) == len(pack)


def test_there_are_no_more_packs_than_needed():
    jobs = fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, 0)
    assert [len(pack) for pack in packs(jobs, 16, never)] == [7, 6]  # ReFilled's stages are why there are two
    plain = [job for job in jobs if job.method != "refilled"]
    assert [len(pack) for pack in packs(plain, 16, never)] == [11]
    assert [len(pack) for pack in packs(plain, 4, never)] == [4, 4, 3]


def test_seeds_share_a_pack_where_they_see_the_same_images():
    whole = [fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, seed)[0] for seed in (0, 1, 2)]
    assert [len(pack) for pack in packs(whole, 16, never)] == [3]
    drawn = [few.setting(PAPER, "cifar100", 25, 0, seed, 0)[0] for seed in (0, 1, 2)]
    assert [len(pack) for pack in packs(drawn, 16, never)] == [1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_a_second_stage_comes_after_the_first(size):
    jobs = fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, 0)
    found = packs(jobs, size, never)
    assert max(map(len, found)) <= size
    place = {part: number for number, pack in enumerate(found) for part in pack}
    refilled = next(job for job in jobs if job.method == "refilled")
    assert place[Part(refilled, 0)] < place[Part(refilled, 1)]


def test_a_waiting_student_skips_its_first_stage():
    jobs = fig05.setting(PAPER, "cifar100", "wrn-16-1", 0, 0)
    parts = [part for pack in packs(jobs, 16, lambda job, stage: True) for part in pack]
    assert len(parts) == len(jobs)


def test_the_most_wanted_comes_first():
    jobs = [job for item in ITEMS.values() for job in item.jobs(PAPER)]
    first = packs(jobs, 16, never)[0][0].job
    assert (first.experiment, first.data, first.student, first.seed) == ("fig05", "cifar100", "wrn-16-1", 0)
    tiers = [pack[0].job.tier for pack in packs(jobs, 16, never)]
    assert tiers == sorted(tiers)


def test_estimates_follow_what_was_measured(tmp_path):
    pace = Pace(tmp_path / "pace.json")
    passes = [("wrn-16-1", 25000 * 200.0)] * 10
    assert pace.estimate(passes) == pytest.approx(185 + 30)
    pace.learn(passes, seconds=120, setup=10)
    assert Pace(tmp_path / "pace.json").estimate(passes) == pytest.approx(130)
    assert pace.estimate(passes, eager=True) > pace.estimate(passes)
    pace.remember_eager(["mgd"])
    assert Pace(tmp_path / "pace.json").eager == ["mgd"]


def test_a_row_is_known_by_its_fields_and_options():
    job = next(job for job in fig05.setting(PAPER, "cifar100", "wrn-16-1", 2, 1) if job.name == "sinkhorn")
    row = {**job.identity(), "options": job.settings()}
    assert job.matches(row)
    assert not replace(job, seed=2).matches(row)
    assert not job.matches({**row, "options": {**job.settings(), "weight": 3.0}})
    assert not replace(job, options=(("weight", 3.0),)).matches(row)
    older = {name: value for name, value in job.settings().items() if name != "scale_cost"}
    assert job.matches({**row, "options": older})  # an option that came later
    assert job.digest() != replace(job, options=(("weight", 3.0),)).digest()


def test_with_all_images_few_labels_are_figure_five():
    some = few.setting(PAPER, "cifar100", None, 0, 0, 10)
    assert {job.experiment for job in some if job.method != "finetune"} == {"fig05"}
    assert set(few.METHODS) == {job.name for job in some}
    assert next(job for job in some if job.method == "finetune").student == "wrn-40-2"


def test_few_labels_are_mixed_as_run_does_it():
    for count in few.COUNTS["cifar100"]:
        recipes = {job.recipe for job in few.setting(PAPER, "cifar100", count, 0, 0, 10, few.RUN)}
        assert recipes == {"patient-early" if count in (10, 25, 50) else "mixed-early"}
    for ours, theirs in (("patient-early", "patient"), ("mixed-early", "mixed")):
        mine, product = schedule.RECIPES[ours], recipe.RECIPES[theirs]
        assert (mine.mixup, mine.mixup_until) == (product.mixup, product.mixup_until)


def test_jobs_are_unique_and_hold_what_the_issue_asks_for():
    for name, item in ITEMS.items():
        for scale in (PAPER, SMOKE):
            jobs = item.jobs(scale)
            assert len(jobs) == len(set(jobs)), name
    main = [job for job in ITEMS["fig05"].jobs(PAPER) if job.student == "wrn-16-1"]
    assert {job.seed for job in main} == {0, 1, 2}
    assert len({(job.task, job.seed, job.name) for job in main if job.name in fig05.METHODS}) == 6 * 3 * 9
    assert {job.task for job in main if job.method == "kd"} == {0}
