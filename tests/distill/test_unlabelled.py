"""Samples without labels: what an epoch holds, what the loss makes of them, who refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from preceptor.cli import app
from preceptor.core import PreceptorError
from preceptor.data.loader import Loader
from preceptor.data.split import ArrayStore, Split
from preceptor.data.task import Task
from preceptor.data.unlabelled import UNLABELLED, beside, overlaps, read_unlabelled
from preceptor.distill.inputs import label_distribution
from preceptor.distill.losses import METHODS
from preceptor.distill.result import Result
from preceptor.distill.schedules import distill
from preceptor.distill.train import train
from preceptor.pipeline import run
from tests.distill.toys import toy_task, vector_task

QUICK = {"recipe": "quick", "progress": False}


@pytest.fixture(scope="module")
def teacher() -> Result:
    return train(toy_task(), student="cnn-4", epochs=8, progress=False)


def picture(path: Path, colour: bool, seed: int = 0, size: int = 8) -> None:
    shape = (size, size, 3) if colour else (size, size)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)).save(path)


def test_labelled_samples_are_about_half_of_what_an_epoch_sees() -> None:
    labelled, more = toy_task(train=8).train, toy_task(train=52, seed=3).train
    seen = beside(labelled, more)
    assert len(seen) == 6 * 8 + 52
    assert (seen.labels >= 0).sum() == 48
    np.testing.assert_array_equal(seen.labels[:48], np.tile(labelled.labels, 6))
    torch.testing.assert_close(seen.load([0, 8, 40]), labelled.load([0, 0, 0]))
    torch.testing.assert_close(seen.load(range(48, 100)), more.load(range(52)))
    few = beside(toy_task(train=40).train, toy_task(train=8, seed=3).train)
    assert (few.labels == UNLABELLED).sum() == 8
    assert len(few) == 48


def test_files_and_arrays_can_be_mixed_and_have_a_fingerprint_of_their_own(tmp_path: Path) -> None:
    for number in range(5):
        picture(tmp_path / f"deep/down/{number}.png", colour=True, seed=number)
    more, _ = read_unlabelled(tmp_path)
    assert set(more.labels) == {UNLABELLED}
    grey = toy_task(train=8).train
    seen = beside(grey, more)
    assert seen.image_shape == (1, 8, 8), "colour files are read as grey where the labelled images are"
    assert more.image_shape == (3, 8, 8), "what came is left as it was"
    assert seen.path(len(seen) - 1).endswith("deep/down/4.png")
    assert seen.path(0) is None
    other = beside(toy_task(train=8, seed=4).train, more)
    assert seen.fingerprint != other.fingerprint


def test_a_mean_over_all_rows_is_one_over_those_with_a_label() -> None:
    labels = torch.tensor([2, -1, 0, -1])
    targets = label_distribution(labels, 3, 0.1, labelled=0.5)
    known = label_distribution(labels[[0, 2]], 3, 0.1)
    torch.testing.assert_close(targets[[1, 3]], torch.zeros(2, 3))
    torch.testing.assert_close(targets.mean(0), known.mean(0))


@pytest.mark.parametrize("name", sorted(name for name, method in METHODS.items() if method.uses_unlabelled))
def test_every_method_that_says_so_learns_from_them(name: str, teacher: Result) -> None:
    few, more = toy_task(train=8), toy_task(train=64, seed=0)
    how = {"teacher": teacher, "method": name, "student": "cnn-4", "epochs": 2, **QUICK}
    found = train(few, unlabelled=more, **how)
    assert np.isfinite(found.history[-1]["loss"])
    assert 0 <= found.history[-1]["train_accuracy"] <= 1
    assert found.config["unlabelled"] == {"samples": 64, "fingerprint": more.train.fingerprint}
    plain = train(few, **how)
    assert "unlabelled" not in plain.config
    assert found.history[-1]["step"] > plain.history[-1]["step"]


def test_they_help_where_labels_are_few(teacher: Result) -> None:
    few = toy_task(train=4)
    how = {"teacher": teacher, "method": "kd", "student": "cnn-4", "batch_size": 8, "weight": 4.0, **QUICK}
    helped = train(few, unlabelled=toy_task(train=96), epochs=4, **how)
    alone = train(few, epochs=96, **how)
    assert helped.accuracy > alone.accuracy + 0.1


def test_it_resumes_to_the_bit_and_refuses_other_samples(teacher: Result, tmp_path: Path) -> None:
    how = {"teacher": teacher, "method": "sinkhorn", "student": "cnn-4", "epochs": 2, **QUICK}
    first, again = toy_task(train=24, seed=5), toy_task(train=24, seed=6)
    whole = train(toy_task(train=8), unlabelled=first, out=tmp_path / "run", **how)
    same = train(toy_task(train=8), unlabelled=first, **how)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, same.model.state_dict()[name])
    with pytest.raises(PreceptorError, match=r"unlabelled\.fingerprint was"):
        train(toy_task(train=8), unlabelled=again, out=tmp_path / "run", resume=True, **how)


def test_who_has_no_use_for_them_says_so(teacher: Result) -> None:
    more = toy_task(train=24, seed=5)
    with pytest.raises(
        PreceptorError, match=r"method none learns nothing from unlabelled samples; .*sinkhorn.* do"
    ):
        train(toy_task(), student="cnn-4", unlabelled=more, **QUICK)
    with pytest.raises(PreceptorError, match="method aml learns nothing"):
        train(toy_task(), student="cnn-4", teacher=teacher, method="aml", unlabelled=more, **QUICK)
    with pytest.raises(PreceptorError, match="method refilled trains in stages"):
        distill("cnn-4", toy_task(), teacher, "refilled", unlabelled=more, **QUICK)
    with pytest.raises(PreceptorError, match="method refilled trains in stages"):
        run("no-zoo", toy_task(), out="no-folder", method="refilled", unlabelled=more)
    with pytest.raises(PreceptorError, match="cache_teacher keeps what the teacher says about labelled"):
        train(
            toy_task(),
            student="cnn-4",
            teacher=teacher,
            method="kd",
            unlabelled=more,
            cache_teacher=True,
            **QUICK,
        )


def test_samples_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        PreceptorError, match="unlabelled samples are vectors and the labelled ones images of 1"
    ):
        beside(toy_task().train, vector_task().train)
    wide = Task.from_arrays(
        np.zeros((4, 3), np.float32), [0, 1] * 2, np.zeros((4, 3), np.float32), [0, 1] * 2
    )
    with pytest.raises(
        PreceptorError, match=r"unlabelled vectors of \(3,\) numbers .* labelled ones of \(6,\)"
    ):
        beside(vector_task().train, wide.train)
    with pytest.raises(PreceptorError, match="has no images"):
        read_unlabelled(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(PreceptorError, match=r"1 of 1 images .* cannot be used"):
        read_unlabelled(tmp_path)
    picture(tmp_path / "good.png", colour=False)
    found, bad = read_unlabelled(tmp_path, "skip")
    assert (len(found), bad) == (1, ("bad.png",))
    for wrong in ("", tmp_path / "good.png", tmp_path / "nowhere"):
        with pytest.raises(
            PreceptorError, match=r"unlabelled data .* give a folder of images, an .npz with train_x"
        ):
            read_unlabelled(wrong)


def test_an_archive_needs_no_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "more.npz", train_x=np.zeros((5, 8, 8), np.uint8))
    found, _ = read_unlabelled(tmp_path / "more.npz")
    assert (len(found), found.image_shape) == (5, (1, 8, 8))
    np.savez(tmp_path / "wrong.npz", x=np.zeros(3))
    with pytest.raises(PreceptorError, match="has x but no train_x"):
        read_unlabelled(tmp_path / "wrong.npz")


def test_on_the_command_line(tmp_path: Path) -> None:
    zoo, run = str(tmp_path / "zoo"), tmp_path / "run"
    quick = ["--recipe", "quick", "--epochs", "1"]
    letters = ["train", "glyphs:upper-A-M?per_class=4&test_per_class=2", "--arch", "cnn-4", "--out",
               str(tmp_path / "letters"), "--zoo", zoo, "--name", "letters", *quick]  # fmt: skip
    assert CliRunner().invoke(app, letters).exit_code == 0
    for number in range(6):
        picture(tmp_path / f"more/{number}.png", colour=False, seed=number, size=28)
    more = ["--unlabelled", str(tmp_path / "more")]
    data = "glyphs:digits?per_class=4&test_per_class=2"
    told = CliRunner().invoke(app, ["distill", data, "--teacher", f"{zoo}/letters", "--student", "cnn-4", "--out",
                                    str(run), *more, *quick])  # fmt: skip
    assert told.exit_code == 0, told.output
    assert json.loads((run / "config.json").read_text())["unlabelled"]["samples"] == 6
    told = CliRunner().invoke(app, ["run", zoo, data, "--student", "cnn-4", "--out", str(tmp_path / "whole"), *more,
                                    "--recipe", "quick", "-o", "epochs=1", "--method", "sinkhorn"])  # fmt: skip
    assert told.exit_code == 0, told.output
    kept = json.loads((tmp_path / "whole/from-letters/config.json").read_text())
    assert kept["unlabelled"]["samples"] == 6
    alone = json.loads((tmp_path / "whole/plain/config.json").read_text())
    assert "unlabelled" not in alone


def test_the_plain_student_gets_as_many_steps(teacher: Result, tmp_path: Path) -> None:
    few, more = toy_task(train=8), toy_task(train=64, seed=3)
    how = {"teacher": teacher, "method": "kd", "student": "cnn-4", "epochs": 2, "batch_size": 8, **QUICK}
    found = train(few, unlabelled=more, with_baseline=True, out=tmp_path / "run", **how)
    log = (tmp_path / "run/baseline/log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == found.history[-1]["step"] == 2 * (64 + 64) // 8


def test_samples_of_the_task_itself_are_counted(teacher: Result) -> None:
    task = toy_task(train=8)
    both = np.concatenate(
        [task.train.load(slice(None)), task.test.load(slice(5)), np.zeros((1, 1, 8, 8), np.uint8)]
    )
    more = Split(ArrayStore(both), np.zeros(14))
    found = train(task, teacher=teacher, method="kd", student="cnn-4", epochs=1, unlabelled=more, **QUICK)
    assert (
        found.notes[0] == "8 of the 14 unlabelled samples are in the training set with their labels already"
    )
    assert found.notes[1].startswith(
        "5 of the 14 unlabelled samples are in the test set: its accuracy is of samples"
    )
    assert overlaps(toy_task(seed=9).train, task.train, task.test) == []


def test_a_folder_that_is_the_data_itself_is_told_of(tmp_path: Path) -> None:
    for number in range(8):
        picture(tmp_path / f"{'ab'[number % 2]}/{number}.png", colour=False, seed=number)
    task, (more, _) = Task(tmp_path), read_unlabelled(tmp_path)
    told = " ".join(overlaps(more, task.train, task.test))
    assert f"{len(task.train)} of the 8 unlabelled samples are in the training set" in told
    assert f"{len(task.test)} of the 8 unlabelled samples are in the test set" in told


@pytest.mark.parametrize("colour", [False, True])
def test_pictures_of_any_kind_and_size_fit(colour: bool, tmp_path: Path) -> None:
    for place, mode in enumerate(("L", "LA", "1", "P", "RGB", "RGBA", "CMYK")):
        image = Image.new("RGB", (5 + 9 * place, 40 - 5 * place), (204, 204, 204)).convert(mode)
        image.save(tmp_path / f"{place}.{'tif' if mode == 'CMYK' else 'png'}")
    pixels = toy_task(train=8).train.load(slice(None)).repeat(1, 3 if colour else 1, 1, 1).numpy()
    task = Task.from_arrays(pixels, [0, 1] * 4, pixels, [0, 1] * 4, ["a", "b"])
    seen = beside(task.train, read_unlabelled(tmp_path)[0])
    for place in (8, 9, 11, 12, 13, 14):  # 10 has only black and white
        pixels = seen.pixels(place)
        assert pixels.shape[0] == (3 if colour else 1)
        np.testing.assert_allclose(pixels, 204, atol=1, err_msg=seen.path(place))
    batches = list(Loader(seen, 4, train=False, image_size=8).epoch())
    assert sum(len(batch.images) for batch in batches) == 15
    assert {batch.images.shape[1:] for batch in batches} == {(3 if colour else 1, 8, 8)}
    assert len(beside(task.train, seen.select([14], np.array([UNLABELLED])))) == 9, "one is enough"
