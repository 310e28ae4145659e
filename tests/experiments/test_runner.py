from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from experiments.book import Book
from experiments.items import fig05
from experiments.jobs import SMOKE, distillation
from experiments.lab import Lab
from experiments.packed import Pack
from experiments.runner import Runner, done
from experiments.sittings import Sitting

from experiments import results, run, sittings


def jobs(*methods, **rest):
    return [
        distillation(SMOKE, "trial", "cifar100", "wrn-16-1", m, "wrn-40-2", 0, 0, **rest) for m in methods
    ]


def rows(lab):
    return results.read(lab.results / "trial.jsonl")


def test_rows_carry_what_a_reader_needs_and_nothing_runs_twice(lab, monkeypatch):
    some = jobs("none", "sinkhorn")
    assert Runner(lab).run(some) == 0
    for row in rows(lab):
        assert {"data", "student", "teacher", "overlap", "method", "seed", "epochs", "accuracy"} <= set(row)
        assert {"command", "commit", "hardware", "python", "torch"} <= set(row["evidence"])
        assert 0 <= row["accuracy"] <= 1
        assert row["overlap"] == 1
    monkeypatch.setattr(Pack, "train", lambda self, *rest: pytest.fail("trained again"))
    assert Runner(lab).run(some) == 0
    assert len(rows(lab)) == 2


def test_a_lab_says_how_its_packs_train(lab, monkeypatch):
    packs = []
    evaluate = Pack.evaluate
    monkeypatch.setattr(Pack, "evaluate", lambda self, *rest: [packs.append(self), evaluate(self, *rest)])
    for merged, bfloat16 in ((True, False), (False, True)):
        lab.merged, lab.bfloat16 = merged, bfloat16
        assert Runner(lab).run(jobs("none", "kd", variant=str(bfloat16))) == 0
    networks = [len(pack.choirs) for pack in packs if len(pack.students) == 2]
    assert networks == [1, 2]
    assert [row["precision"] for row in rows(lab)] == ["float32"] * 2 + ["bfloat16"] * 2


def test_an_interruption_leaves_the_packs_that_are_done(lab, monkeypatch):
    some = jobs("none", "sinkhorn", "rkd")
    train, calls = Pack.train, []

    def interrupted(self, *rest):
        calls.append(len(self.students))
        if len(calls) == 3:  # the teacher, one pack, then this
            raise KeyboardInterrupt
        return train(self, *rest)

    monkeypatch.setattr(Pack, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Runner(lab, size=1).run(some)
    assert [row["method"] for row in rows(lab)] == ["none"]
    monkeypatch.setattr(Pack, "train", train)
    Runner(lab, size=1).run(some)
    assert [row["method"] for row in rows(lab)] == ["none", "sinkhorn", "rkd"]


class Hurried(Sitting):
    """Has time for so many epochs."""

    def __init__(self, folder, epochs, log):
        super().__init__(folder, log=log)
        self.epochs = epochs

    @property
    def left(self):
        self.epochs -= 1
        return float(self.epochs + 1)


@pytest.mark.parametrize("way", ["put aside", "ended"])
def test_a_pack_at_work_goes_on_where_it_was(lab, tmp_path, monkeypatch, way):
    monkeypatch.setattr(sittings, "KEEP_EVERY", 0.0)
    some = [replace(job, epochs=6) for job in jobs("none", "sinkhorn", "mgd")]
    lab.teacher(some[0].teacher)
    Runner(lab).run(some)
    expected = [(row["variant"], row["accuracy"], row["loss"]) for row in rows(lab)]
    (lab.results / "trial.jsonl").unlink()

    told = []
    runner = Runner(lab, log=told.append)
    if way == "put aside":
        runner.sitting = Hurried(lab.packs, 3, told.append)
        assert runner.run(some) == 3
        assert any("put aside after epoch 3 of 6" in line for line in told)
    else:
        epoch = Pack._epoch
        ended = lambda self, number: epoch(self, number) if number < 3 else pytest.exit("gone")  # noqa: E731
        monkeypatch.setattr(Pack, "_epoch", ended)
        with pytest.raises(pytest.exit.Exception):
            runner.run(some)
        monkeypatch.setattr(Pack, "_epoch", epoch)
    assert not rows(lab)

    epochs, epoch = [], Pack._epoch
    monkeypatch.setattr(Pack, "_epoch", lambda self, number: (epochs.append(number), epoch(self, number)))
    Runner(lab, log=told.append).run(some)
    assert any("goes on after epoch 3 of 6" in line for line in told)
    assert epochs == [3, 4, 5]
    assert [(row["variant"], row["accuracy"], row["loss"]) for row in rows(lab)] == expected
    assert not list(lab.packs.iterdir())


@pytest.mark.parametrize("left", [0, 5, 2000])
def test_a_kept_pack_that_is_cut_short_is_named(lab, left):
    (job,) = [replace(job, epochs=4) for job in jobs("none")]
    lab.teacher(job.teacher)
    runner = Runner(lab, log=lambda text: None)
    runner.sitting = Hurried(lab.packs, 2, lambda text: None)
    runner.run([job])
    (kept,) = lab.packs.iterdir()
    kept.write_bytes(kept.read_bytes()[:left])
    with pytest.raises(SystemExit, match=f"{kept.name} cannot be read; delete it"):
        Runner(lab).run([job])
    assert kept.exists()


def test_teachers_at_work_go_on_too(lab, monkeypatch):
    (job,) = [replace(job, teacher=replace(job.teacher, epochs=4)) for job in jobs("sinkhorn")]
    runner = Runner(lab, log=lambda text: None)
    runner.sitting = Hurried(lab.packs, 3, lambda text: None)
    assert runner.run([job]) == 1
    assert len(list(lab.packs.iterdir())) == 1
    epochs, epoch = [], Pack._epoch
    monkeypatch.setattr(Pack, "_epoch", lambda self, number: (epochs.append(number), epoch(self, number)))
    assert Runner(lab).run([job]) == 0
    assert epochs == [3, 0]  # the teacher's last, the student's only one
    assert not list(lab.packs.iterdir())


def test_the_second_stage_goes_on_from_the_first(lab, monkeypatch):
    (job,) = jobs("refilled")
    begun = []
    train = Pack.train

    def noting(self, *rest):
        begun.append(
            (self.students[0].method.name, next(self.students[0].network.parameters()).detach().clone())
        )
        return train(self, *rest)

    monkeypatch.setattr(Pack, "train", noting)
    Runner(lab).run([job])
    assert [name for name, _ in begun] == ["none", "refilled-embedding", "refilled-classifier"]
    first = lab.student(job)
    torch.testing.assert_close(begun[1][1], next(first.parameters()).detach())
    handed = lab.pupil(job, 1, lab.tutor(job, lab.images(job)[0]), None).network
    torch.testing.assert_close(begun[2][1], next(handed.parameters()).detach())
    assert not torch.equal(begun[1][1], begun[2][1])
    assert [row["method"] for row in rows(lab)] == ["refilled"]


def test_nothing_is_started_when_time_is_over(lab):
    told = []
    assert Runner(lab, budget=0, log=told.append).run(jobs("none")) == 1
    assert not rows(lab)
    assert told[1] == "time is over"


def test_a_student_that_diverges_has_a_row_without_accuracy(lab):
    (job,) = jobs("rkd", options={"distance_weight": 1e30})
    Runner(lab).run([job])
    (row,) = rows(lab)
    assert row["diverged"] is True
    assert row["accuracy"] is None


def test_fine_tuning_starts_from_the_teacher_under_a_new_head(lab):
    job = distillation(SMOKE, "trial", "cifar100", "wrn-40-2", "finetune", "wrn-40-2", 5, 0)
    network, teacher = lab.student(job), lab.teacher(job.teacher)
    for name, value in network.state_dict().items():
        same = torch.equal(value, teacher.state_dict()[name])
        assert same is not name.startswith("classifier"), name
    with pytest.raises(ValueError, match="own architecture"):
        lab.student(distillation(SMOKE, "trial", "cifar100", "wrn-16-1", "finetune", "wrn-40-2", 5, 0))


def test_teachers_are_trained_once_and_kept(lab):
    (job,) = jobs("kd")
    Runner(lab).run([job])
    (row,) = results.read(lab.results / "teachers.jsonl")
    assert row["arch"] == job.teacher.arch
    again = Lab(SMOKE, lab.work, results=lab.results)
    kept = again.teacher(job.teacher)
    assert len(results.read(lab.results / "teachers.jsonl")) == 1
    torch.testing.assert_close(kept.classifier.weight, lab.teacher(job.teacher).classifier.weight)
    assert not kept.training


def test_a_student_that_is_kept_is_trained_again_where_it_is_gone(lab):
    (job,) = jobs("kd", keep=True)
    assert Runner(lab).run([job]) == 0
    assert list(done(lab, [job])) == [job]
    lab.student_path(job).unlink()
    assert not done(lab, [job])
    assert Runner(lab).run([job]) == 0
    assert len(rows(lab)) == 2


def test_teachers_can_be_trained_ahead_of_students(lab):
    (job,) = jobs("kd")
    assert Runner(lab, budget=0).teachers([job]) == 1
    assert Runner(lab).teachers([job]) == 0
    assert not lab.missing([job.teacher])
    assert [path.name for path in lab.results.iterdir()] == ["teachers.jsonl"]


def test_few_images_a_class_and_validation_images(lab):
    (job,) = jobs("none", per_class=3, split="validation")
    train, held = lab.images(job)
    assert torch.bincount(train.labels).tolist() == [3] * 5
    assert torch.bincount(held.labels).tolist() == [1] * 5
    whole = lab.task("cifar100", 0)[0]
    places = [{bytes(x.numpy().tobytes()) for x in part.pixels} for part in (train, held, whole)]
    assert not places[0] & places[1]
    assert places[0] | places[1] <= places[2]


def test_a_line_cut_short_is_left_out_and_the_next_one_whole(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    results.append(path, [{"a": 1}])
    path.write_text(path.read_text() + '{"a": 2, "b')
    assert [row["a"] for row in results.read(path)] == [1]
    results.append(path, [{"a": 3}])
    assert [row["a"] for row in results.read(path)] == [1, 3]
    assert "cut short" in capsys.readouterr().out


def test_evidence_does_not_tell_where_the_callers_folders_are(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["/some/where/run.py", "fig05", "--data", "/home/me/data", "--budget", "9"]
    )
    assert results.evidence()["command"] == "run.py fig05 --data DATA --budget 9"


def test_only_picks_jobs_and_names_the_fields_on_a_mistake():
    some = fig05.setting(SMOKE, "cifar100", "wrn-16-1", 0, 0)
    assert [job.method for job in some if run.chosen(job, ["method=none,aml", "seed=0"])] == ["none", "aml"]
    assert [job.name for job in some if run.chosen(job, [f"variant={fig05.GENTLE_RKD}"])] == [
        fig05.GENTLE_RKD
    ]
    with pytest.raises(SystemExit, match="jobs have the fields"):
        run.chosen(some[0], ["colour=red"])


def test_done_reads_rows_of_the_jobs_own_experiment(lab):
    (job,) = jobs("none")
    lab.results.mkdir(parents=True)
    row = {**job.identity(), "options": job.settings(), "accuracy": 0.5}
    (lab.results / "other.jsonl").write_text(json.dumps(row) + "\n")
    assert done(lab, [job]) == {}
    (lab.results / "trial.jsonl").write_text(json.dumps(row) + "\n")
    assert done(lab, [job])[job]["accuracy"] == 0.5


def test_rows_say_which_weights_taught(lab):
    some = jobs("none", "kd")
    Runner(lab).run(some)
    alone, taught = rows(lab)
    assert alone["teacher_weights"] is None
    assert taught["teacher_weights"] == lab.weights_of(some[1].teacher)
    assert not Book(lab.results).trained_again("trial")
    results.append(lab.results / "trial.jsonl", [{**taught, "seed": 1, "teacher_weights": "other"}])
    assert "task 1: 1 and 1 rows." in Book(lab.results).trained_again("trial")


def test_a_row_names_the_commit_that_the_run_began_with(monkeypatch):
    results.commit.cache_clear()
    try:
        monkeypatch.setenv("PRECEPTOR_COMMIT", "first")
        assert results.evidence()["commit"] == "first"
        monkeypatch.setenv("PRECEPTOR_COMMIT", "later")
        assert results.evidence()["commit"] == "first"
    finally:
        results.commit.cache_clear()
