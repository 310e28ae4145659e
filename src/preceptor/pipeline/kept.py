"""The kept student, and its files at the top of a run's folder: a run of its own, judged by the test split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preceptor.data import Task
from preceptor.distill.evaluate import Evaluation
from preceptor.distill.run_folder import RunFolder
from preceptor.files import write_atomically
from preceptor.pipeline.trials import Trial


@dataclass(frozen=True)
class Kept:
    """The student that a run keeps and the plain one, as the test split has them."""

    trial: Trial  # that was chosen
    last: Trial  # its student's last training: the trial itself, or the one on all labels
    found: Evaluation  # of that student
    plain: Evaluation  # of the plain student, which may be the same

    def on_test_split(self, classes: Sequence[str]) -> dict[str, Any]:
        """How both end, by the names that `PipelineResult` has for it."""
        return {
            "accuracy": self.found.accuracy,
            "baseline_accuracy": self.plain.accuracy,
            "per_class_accuracy": dict(zip(classes, self.found.per_class_accuracy, strict=True)),
            "baseline_per_class_accuracy": dict(zip(classes, self.plain.per_class_accuracy, strict=True)),
        }


def put_on_top(folder: Path, kept: Kept, task: Task) -> None:
    """Write what predict, export and zoo read of a run, so that they take `folder` for one.

    Args:
        folder: Of the whole run.
        kept: Whose files these are.
        task: With all its labels.
    """
    student, top, found = RunFolder(kept.last.path), RunFolder(folder), kept.found
    baseline = None if kept.trial.teacher is None else kept.plain.accuracy
    config, result, log = student.read_config(), student.read_result() or {}, student.read_log()
    data = {"name": task.name, "fingerprint": task.fingerprint, "train": config["data"]["train"]}
    if kept.last is kept.trial:  # the test split of a trial is what was held out
        data["validation"] = config["data"]["test"]
    result |= {
        "accuracy": found.accuracy,
        "baseline_accuracy": baseline,
        "below_baseline": baseline is not None and found.accuracy < baseline,
        "validation_accuracy": kept.trial.validation_accuracy,  # by which it was chosen
        "per_class_accuracy": dict(zip(task.classes, found.per_class_accuracy, strict=True)),
        "confusion": [list(row) for row in found.confusion],
        "history": {**result["history"], "last": log[-1]},
    }
    write_atomically(top.model_file, student.model_file.read_bytes())
    top.write_config({**config, "data": {**data, "test": len(task.test)}})
    top.write_log(log)
    top.write_result(result)
