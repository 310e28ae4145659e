from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from torch import nn

from preceptor import Task, Zoo, run
from preceptor.core import PreceptorError
from tests.pipeline.blobs import RECIPE, blobs


def test_wrong_calls_say_what_to_do(zoo, tmp_path):
    task = blobs("abcd")
    with pytest.raises(PreceptorError, match="at least 1 teacher"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", top=0)
    with pytest.raises(PreceptorError, match="method 'magic' is unknown"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method="magic")
    with pytest.raises(PreceptorError, match="no method came"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method=[])
    with pytest.raises(PreceptorError, match="method aml learns nothing from unlabelled samples"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", method=["sinkhorn", "aml"], unlabelled=task)
    with pytest.raises(PreceptorError, match="a student of Linear came; run trains several"):
        run(zoo, task, student=nn.Linear(2, 2), out=tmp_path / "r")
    with pytest.raises(PreceptorError, match="seed -1 came"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", seed=-1)
    with pytest.raises(PreceptorError, match="did you mean 'epochs'"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r", epoch=3)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "ranking.json").write_text("{}")
    with pytest.raises(PreceptorError, match=r"pass resume=True \(--resume\)"):
        run(zoo, task, student="mlp-8", out=tmp_path / "r")
    with pytest.raises(PreceptorError, match="there is no zoo"):
        run(Zoo(str(tmp_path / "empty")), task, student="mlp-8", out=tmp_path / "s")


def test_several_processes_are_refused(zoo, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PreceptorError, match="run works in one process and several were started"):
        run(zoo, blobs("abcd"), student="mlp-8", out=tmp_path / "r")


def test_a_student_that_cannot_be_built_is_told_before_the_ranking(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr("preceptor.pipeline.rank", lambda *_, **__: pytest.fail("the ranking began"))
    with pytest.raises(PreceptorError, match="no architecture 'mlp8'"):
        run(zoo, blobs("abcd"), student="mlp8", out=tmp_path / "r")
    for number in range(8):
        for name in "ab":
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (20 + number, 24), (9 * number, 0, 0))
            image.save(tmp_path / "photos" / name / f"{number}.png")
    with pytest.raises(PreceptorError, match=r"differ in size; .*--image-size 224"):
        run(zoo, tmp_path / "photos", student="cnn-4", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.fixture
def no_training(monkeypatch):
    """Nothing may be trained; the ranking may run."""
    monkeypatch.setattr("preceptor.pipeline.alone.train", lambda *_, **__: pytest.fail("a training began"))


def test_a_zoo_without_a_teacher_for_the_method_is_told_before_the_ranking(
    zoo, tmp_path, monkeypatch, no_training
):
    monkeypatch.setattr("preceptor.pipeline.rank", lambda *_, **__: pytest.fail("the ranking began"))
    whole = {"student": "mlp-8", "out": tmp_path / "r", **RECIPE}
    with pytest.raises(
        PreceptorError, match=r"all 2 teachers .*only the student has m, n, .*such as sinkhorn"
    ):
        run(zoo, blobs("mn"), method="kd", **whole)
    with pytest.raises(PreceptorError, match="compares feature maps and the student gives none"):
        run(zoo, blobs("abcd"), method="fitnet", **whole)
    with pytest.raises(PreceptorError, match="method none takes no teacher"):
        run(zoo, blobs("abcd"), method="none", **whole)
    with pytest.raises(PreceptorError, match="'generation' is neither"):
        run(zoo, blobs("abcd"), method="ban", generation=2, **whole)
    with pytest.raises(PreceptorError, match="fraction"):
        run(zoo, blobs("abcd"), validation=1.5, **whole)
    assert not (tmp_path / "r").exists()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("preceptor.distill.claim.check_can_write", refuse)
    with pytest.raises(PermissionError):
        run(zoo, blobs("abcd"), **whole)


def test_a_leader_that_the_method_cannot_use_is_told_before_any_training(zoo, tmp_path, no_training):
    with pytest.raises(
        PreceptorError, match=r"^same leads the ranking and does not fit: .*distil from one .*: other$"
    ):
        run(zoo, named(blobs("abcd"), "wxyz"), method="kd", student="mlp-8", out=tmp_path / "r", **RECIPE)
    # So that another call may use the folder.
    assert not {path.name for path in (tmp_path / "r").iterdir()} - {".lock"}


def named(task: Task, classes: str) -> Task:
    """The same samples with other names."""
    return Task.from_splits(task.train, task.test, list(classes))


def test_a_class_with_one_sample_is_trained_on_and_told(zoo, tmp_path):
    task, said = blobs("abcd", seed=8), []
    rows = np.flatnonzero((task.train.labels != 2) | (np.arange(96) == np.argmax(task.train.labels == 2)))
    lone = Task.from_splits(task.train.select(rows), task.test, task.classes, "lone")
    options = {"student": "mlp-8", "method": "sinkhorn", "report": False, "notify": said.append, **RECIPE}
    run(zoo, lone, out=tmp_path / "r", **options)
    sentence = (
        "class 'c' has a single training vector: it stays in training, and none is held out to judge by"
    )
    assert said.count(sentence) == 1
    trial = json.loads((tmp_path / "r" / "plain" / "result.json").read_text())
    assert trial["per_class_accuracy"]["c"] is None
    assert sum(map(sum, trial["confusion"])) == 15
    single = lone.per_class(1)
    with pytest.raises(
        PreceptorError, match="a single training sample of each class, so none can be held out"
    ):
        run(zoo, single, out=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_unlabelled_samples_of_the_task_itself_are_told_and_the_held_out_ones_are_not_trained_on(
    zoo, tmp_path
):
    task, said = blobs("abcd", seed=8), []
    options = {"student": "mlp-8", "out": tmp_path / "r", "report": False, "notify": said.append, **RECIPE}
    options["method"] = "sinkhorn"
    run(zoo, task, unlabelled=task.train, **options)
    assert "96 of the 96 unlabelled samples are in the training set with their labels already" in said
    notes = json.loads((tmp_path / "r" / "from-same" / "result.json").read_text())["notes"]
    left = 96 - len(task.split_validation(0.2, 0)[1])
    assert notes == [
        f"{left} of the {left} unlabelled samples are in the training set with their labels already"
    ]
    judging = task.split_validation(0.2, 0)[1]
    with pytest.raises(
        PreceptorError, match="all 20 unlabelled samples are among those held out to judge by"
    ):
        run(zoo, task, unlabelled=judging, **{**options, "out": tmp_path / "t"})
    assert not (tmp_path / "t").exists()
    said.clear()
    run(zoo, task, unlabelled=task.test, **{**options, "out": tmp_path / "s"})
    assert any("are in the test set" in sentence for sentence in said)


def test_a_file_is_no_folder_for_a_run(zoo, tmp_path):
    (tmp_path / "file").touch()
    for place in ("file", "file/r"):
        with pytest.raises(PreceptorError, match="a file stands where a folder is needed"):
            run(zoo, blobs("abcd"), student="mlp-8", out=tmp_path / place, **RECIPE)
