"""What cannot be trained is refused before a folder seems to hold a run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.distill.teacher_side import TeacherSide
from preceptor.distill.train import train
from preceptor.models import build
from tests.distill.toys import toy_task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kd"}, "needs a teacher with the student's classes"),
        ({"method": "fitnet", "cache_teacher": True}, "cannot be cached"),
    ],
)
def test_unmet_needs_are_told_before_the_teacher_sees_the_training_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(TeacherSide, "over", lambda *_: pytest.fail("the teacher was asked"))
    teacher = {"teacher": build("cnn-4", 3, (1, 8, 8), seed=1), "teacher_classes": "xyz"}
    common = {"student": "cnn-2", "epochs": 1, "device": "cpu", "out": tmp_path / "r"}
    with pytest.raises(PreceptorError, match=message):
        train(toy_task(), **common, **teacher, **options)
    assert not (tmp_path / "r").exists()


def test_what_a_method_refuses_leaves_the_folder_free_for_another(tmp_path: Path) -> None:
    common = {"student": "cnn-2", "epochs": 1, "device": "cpu", "out": tmp_path / "r"}
    teacher = {"teacher": build("cnn-4", 3, (1, 8, 8), seed=1), "teacher_classes": "xyz"}
    with pytest.raises(PreceptorError, match="centers data needs the teacher's stored class centres"):
        train(toy_task(), method="sinkhorn", centers="data", **teacher, **common)
    assert train(toy_task(), method="sinkhorn", **teacher, **common).accuracy is not None


def test_a_folder_that_cannot_be_written_is_told_before_the_teacher_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: os.PathLike[str]) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    monkeypatch.setattr(TeacherSide, "over", lambda *_: pytest.fail("the teacher was asked"))
    monkeypatch.setattr("preceptor.distill.claim.check_can_write", refuse)
    with pytest.raises(PermissionError):
        train(
            toy_task(), student="cnn-2", epochs=1, device="cpu", out=tmp_path / "r", method="sinkhorn",
            teacher=build("cnn-4", 3, (1, 8, 8), seed=1),
        )  # fmt: skip
