"""What a training gives back, and how it is kept in result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from preceptor.distill.run_folder import RunFolder


@dataclass(frozen=True)
class Result:
    """A finished training. `model` takes normalised inputs; `config` holds mean, std and everything else."""

    model: nn.Module
    accuracy: float  # on the test split
    per_class_accuracy: Mapping[str, float | None]
    confusion: Sequence[Sequence[int]]  # rows are true classes
    history: Sequence[Mapping[str, Any]]  # one record an epoch, as in log.jsonl
    config: Mapping[str, Any]
    path: Path | None = None  # the run folder
    baseline_accuracy: float | None = None  # of the plain student, where it was asked for
    seconds: float = 0.0
    hardware: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the reader has to know
    method_state: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # what the method learned: heads, regressors
    stages: tuple[Result, ...] = ()  # the trainings before this one, for methods of several

    @property
    def below_baseline(self) -> bool:
        """Whether the distilled student ended below the plain one."""
        return self.baseline_accuracy is not None and self.accuracy < self.baseline_accuracy

    @property
    def epochs(self) -> int:
        """How many the weights have seen: all, or with patience those up to the best on the validation split."""
        if not self.config["recipe"]["patience"]:
            return len(self.history)
        watched = [record["validation_accuracy"] for record in self.history]
        return watched.index(max(watched)) + 1

    def _repr_html_(self) -> str:
        """What a notebook shows: accuracy against the baseline, what was trained, and the curve."""
        from preceptor.notebook import curve, paragraphs, table

        baseline = None if self.baseline_accuracy is None else f"{100 * self.baseline_accuracy:.1f} %"
        facts = [
            ("accuracy on the test split", f"{100 * self.accuracy:.1f} %"),
            ("plain student", baseline),
            ("method", self.config.get("method")),
            ("epochs, seconds", f"{len(self.history)}, {self.seconds:.1f}"),
            ("run folder", self.path),
        ]
        watched = [r.get("validation_accuracy", r.get("test_accuracy")) for r in self.history]
        shown = table(
            ["Student", str(self.config.get("arch", ""))], [fact for fact in facts if fact[1] is not None]
        )
        return shown + curve(watched, "accuracy over epochs") + paragraphs(self.notes)

    def to_json(self) -> dict[str, Any]:
        """The content of result.json."""
        last = dict(self.history[-1]) if self.history else {}
        return {
            "schema_version": 1,
            "accuracy": self.accuracy,
            "baseline_accuracy": self.baseline_accuracy,
            "below_baseline": self.below_baseline,
            "per_class_accuracy": dict(self.per_class_accuracy),
            "confusion": [list(row) for row in self.confusion],
            "history": {
                "epochs": len(self.history),
                "loss": [record.get("loss") for record in self.history],
                "accuracy": [
                    record.get("validation_accuracy", record.get("test_accuracy")) for record in self.history
                ],
                "last": last,
            },
            "seconds": self.seconds,
            "hardware": dict(self.hardware),
            "notes": list(self.notes),
            "stages": [str(stage.path) for stage in self.stages if stage.path is not None],
        }


def read_result(
    folder: RunFolder, stored: Mapping[str, Any], network: nn.Module, config: Mapping[str, Any]
) -> Result:
    """The result of a run that was finished before, from its folder."""
    network.load_state_dict(folder.read_model())
    checkpoint = folder.load_checkpoint()
    return Result(
        model=network.eval(),
        accuracy=stored["accuracy"],
        per_class_accuracy=stored["per_class_accuracy"],
        confusion=stored["confusion"],
        history=tuple(folder.read_log()),
        config=config,
        path=folder.path,
        baseline_accuracy=stored["baseline_accuracy"],
        seconds=stored["seconds"],
        hardware=stored["hardware"],
        notes=tuple(stored["notes"]),
        method_state={} if checkpoint is None else checkpoint.section("method"),
    )


def baseline_note(accuracy: float, baseline: float) -> str:
    """One honest sentence about a student and its plain baseline."""
    gap = 100 * (accuracy - baseline)
    if gap < 0:
        return (
            f"the distilled student ends {-gap:.1f} points BELOW its plain baseline "
            f"({100 * accuracy:.1f} % against {100 * baseline:.1f} %): the teacher did not help"
        )
    if gap == 0:
        return f"the distilled student ends level with its plain baseline ({100 * accuracy:.1f} %)"
    return (
        f"the distilled student ends {gap:.1f} points above its plain baseline "
        f"({100 * accuracy:.1f} % against {100 * baseline:.1f} %), one seed each"
    )
