"""One training at a time in a folder, and a folder that is free again however a training ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.distill.claim import claimed
from preceptor.distill.loop import Loop
from preceptor.distill.train import train
from tests.distill.plain import Plain
from tests.distill.toys import vector_task

IN_USE = "is in use: another training writes there; wait for its end or choose another folder"


def test_a_second_training_in_the_same_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {"student": "mlp-4", "epochs": 1, "out": tmp_path / "r"}
    loop, refused = Loop.run, []

    def disturbed(self: Loop) -> None:
        for resume in (False, True):
            with pytest.raises(PreceptorError, match=IN_USE):
                train(vector_task(), resume=resume, **call)
            refused.append(resume)
        loop(self)

    monkeypatch.setattr(Loop, "run", disturbed)
    train(vector_task(), **call)
    assert refused == [False, True]


def test_who_opened_the_lock_before_a_training_ended_keeps_others_out_after(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with claimed(tmp_path, "config.json"):
        early = (tmp_path / ".lock").open("r+b")
    with early:
        fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(PreceptorError, match=IN_USE), claimed(tmp_path, "config.json"):
            pass
    with claimed(tmp_path, "config.json"):
        pass


def test_the_claim_lasts_while_the_baseline_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, folders = Loop.run, []

    def watched(self: Loop) -> None:
        assert self.job.folder is not None
        with pytest.raises(PreceptorError, match=IN_USE), claimed(tmp_path / "r", "config.json"):
            pass
        folders.append(self.job.folder.path.name)
        loop(self)

    monkeypatch.setattr(Loop, "run", watched)
    train(
        vector_task(), student="mlp-4", method="sinkhorn", teacher=Plain(), epochs=1, out=tmp_path / "r",
        with_baseline=True,
    )  # fmt: skip
    assert folders == ["r", "baseline"]


def test_a_training_that_fails_frees_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Loop) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "r")
    assert train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "r", resume=True).path


def test_the_folder_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from preceptor.distill.claim import claimed
with claimed(Path(sys.argv[1]), "config.json"):
    print("here", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        with pytest.raises(PreceptorError, match=IN_USE), claimed(tmp_path, "config.json"):
            pass
        process.send_signal(signal.SIGKILL)
    with claimed(tmp_path, "config.json"):
        pass


def test_a_ranking_or_a_run_of_several_students_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ranking.json").write_text("{}")
    for resume in (False, True):
        with pytest.raises(PreceptorError, match="already holds a ranking, or a `run` that is not finished"):
            train(vector_task(), student="mlp-4", epochs=1, out=tmp_path, resume=resume)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"ranking.json"}
