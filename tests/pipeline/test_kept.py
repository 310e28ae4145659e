"""The files of the kept student at the top of a run's folder."""

from __future__ import annotations

import json

import pytest

from preceptor import Zoo, run
from preceptor.distill.saved_run import score_run
from tests.pipeline.blobs import RECIPE, blobs

FILES = ("config.json", "result.json", "log.jsonl", "model.safetensors", "pipeline.json")


@pytest.mark.parametrize("teachers", [["same"], ["other"]], ids=["of a teacher", "plain"])
@pytest.mark.parametrize("refit", [True, False])
def test_the_folder_is_a_run_that_was_judged_by_the_test_split(zoo, tmp_path, refit, teachers):
    task, folder = blobs("abcd", seed=7, noise=1.5), tmp_path / "r"
    call = {
        "student": "mlp-8",
        "method": "sinkhorn",
        "report": False,
        "refit": refit,
        "out": folder,
        **RECIPE,
    }
    result = run(zoo, task, rank_options={"teachers": teachers}, **call)
    assert (result.teacher is None) == (teachers == ["other"])
    assert result.verdict[0].startswith("ranked 1 teacher by ")
    trial = next(one for one in result.trials if one.teacher == result.teacher)
    assert trial.validation_accuracy != result.accuracy, "so that they can be told apart"
    stored, config = (json.loads((folder / name).read_text()) for name in ("result.json", "config.json"))
    found = score_run(folder, task, "cpu")
    assert (stored["accuracy"], stored["validation_accuracy"]) == (result.accuracy, trial.validation_accuracy)
    baseline = None if result.teacher is None else result.baseline_accuracy
    assert stored["baseline_accuracy"] == baseline
    assert stored["below_baseline"] == (result.accuracy < result.baseline_accuracy)
    assert stored["confusion"] == [list(row) for row in found.confusion]
    assert stored["per_class_accuracy"] == dict(zip("abcd", found.per_class_accuracy, strict=True))
    parts = {"train": 96} if refit else {"train": 76, "validation": 20}
    whole = {"name": task.name, "fingerprint": task.fingerprint}
    assert config["data"] == {**whole, **parts, "test": 96}
    assert Zoo(str(tmp_path / "zoo")).add(f"run:{folder}", name="kept").accuracy == result.accuracy

    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert len(records) == stored["history"]["epochs"] == 3
    if refit:
        assert records[-1]["test_accuracy"] == result.accuracy
    else:
        assert records[-1]["validation_accuracy"] == trial.validation_accuracy
        assert not any(name.startswith("test_") for record in records for name in record)
    before = [(folder / name).read_bytes() for name in FILES]
    run(zoo, task, rank_options={"teachers": teachers}, resume=True, **call)
    assert [(folder / name).read_bytes() for name in FILES] == before
