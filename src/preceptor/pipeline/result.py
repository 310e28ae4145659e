"""What a run gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preceptor.core import Ranking
from preceptor.pipeline.trials import Trial

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class PipelineResult:
    """What `run` gives: the student it kept, why, and what every other one did."""

    model: nn.Module
    teacher: str | None  # the teacher of the student that was kept; None: no teacher helped
    method: str  # that it was kept from; "none": the plain student
    accuracy: float  # of the kept student, on the test split, which decided nothing
    baseline_accuracy: float  # of the plain student, likewise
    ranking: Ranking
    trials: Sequence[Trial]
    verdict: Sequence[str]  # what happened, in sentences
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    per_class_accuracy: Mapping[str, float | None] = field(default_factory=dict)  # as accuracy, by class
    baseline_per_class_accuracy: Mapping[str, float | None] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, every trial and the ranking."""
        from preceptor.notebook import paragraphs, table

        rows = [
            (trial.teacher or "none (plain student)", trial.method, f"{100 * trial.validation_accuracy:.1f} %",
             "kept" if (trial.teacher, trial.method) == (self.teacher, self.method) else "")
            for trial in self.trials
        ]  # fmt: skip
        trials = table(["teacher", "method", "accuracy on validation data", ""], rows)
        return paragraphs(self.verdict) + trials + self.ranking._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """The content of pipeline.json."""
        return {
            "schema_version": 1,
            "teacher": self.teacher,
            "method": self.method,
            "accuracy": self.accuracy,
            "baseline_accuracy": self.baseline_accuracy,
            "per_class_accuracy": dict(self.per_class_accuracy),
            "baseline_per_class_accuracy": dict(self.baseline_per_class_accuracy),
            "verdict": list(self.verdict),
            "trials": [
                {
                    "teacher": trial.teacher,
                    "method": trial.method,
                    "validation_accuracy": trial.validation_accuracy,
                    "path": trial.path.name,
                }
                for trial in self.trials
            ],
            "config": dict(self.config),
        }
