"""The students of the demonstration, over several seeds, and what a teacher gained them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preceptor.data import Task
from preceptor.demo.settings import METHOD, Settings
from preceptor.distill.schedules import distill
from preceptor.distill.train import train

CURVE_POINTS = 8  # evaluations during the first seed's training


@dataclass(frozen=True)
class Arm:
    """Students that differ in nothing but their seed."""

    teacher: str | None  # None: no teacher
    accuracies: tuple[float, ...]  # on the test split, one a seed
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return "alone" if self.teacher is None else f"from {self.teacher}"

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    def __str__(self) -> str:
        around = "" if self.spread is None else f" ± {100 * self.spread:.1f}"
        each = ", ".join(f"{100 * accuracy:.1f}" for accuracy in self.accuracies)
        return f"{self.name}: {100 * self.mean:.1f}{around} %" + (
            f"   ({each})" if len(self.accuracies) > 1 else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name, "teacher": self.teacher, "accuracies": list(self.accuracies), "mean": self.mean,
                "spread": self.spread}  # fmt: skip


def train_arm(
    teacher: str | None,
    task: Task,
    folder: Path,
    seeds: int,
    settings: Settings,
    notify: Callable[[str], None],
) -> Arm:
    """Train one student for each seed, all with the same budget; finished ones in `folder` are read."""
    short = None if teacher is None else Path(teacher).name
    runs = folder / "runs" / ("plain" if short is None else f"from-{short}")
    accuracies, paths = [], []
    for place in range(seeds):
        seed = settings.first_seed + place
        # Only the first seed's curve is drawn; looking at the test split takes time.
        every = max(1, settings.student_epochs // CURVE_POINTS) if place == 0 else settings.student_epochs
        shared: dict[str, Any] = {
            "recipe": "quick", "epochs": settings.student_epochs, "batch_size": 32, "lr": 0.1, "seed": seed,
            "out": runs / f"seed-{seed}", "resume": True, "device": "cpu", "evaluate_every": every,
        }  # fmt: skip
        if teacher is None:
            result = train(task, student=settings.arch, **shared)
        else:
            result = distill(settings.arch, task, teacher, METHOD, **shared)
        notify(f"  {short or 'alone'}, seed {seed}: {100 * result.accuracy:.1f} %")
        accuracies.append(result.accuracy)
        paths.append(runs / f"seed-{seed}")
    return Arm(short, tuple(accuracies), tuple(paths))


def gain_sentence(arm: Arm, plain: Arm) -> str:
    """What a teacher did to the student, as the numbers have it: gain, harm or nothing that can be told."""
    gaps = [100 * (with_it - alone) for with_it, alone in zip(arm.accuracies, plain.accuracies, strict=True)]
    gap = statistics.fmean(gaps)
    numbers = f"{100 * plain.mean:.1f} % alone, {100 * arm.mean:.1f} % with it"
    if round(gap, 1) == 0:
        return f"{arm.teacher} neither helped nor harmed: {numbers}."
    told = f"{arm.teacher} gained {gap:.1f} points" if gap > 0 else f"{arm.teacher} COST {-gap:.1f} points"
    if len(gaps) == 1:
        return f"{told} ({numbers}); one seed, so a point or two may be chance."
    if any(round(each, 1) * gap <= 0 for each in gaps):
        return f"{told} on average ({numbers}), but the {len(gaps)} seeds disagree: {_each(gaps)}. Do not count on it."
    return f"{told} on average over {len(gaps)} seeds ({numbers}), in each of them: {_each(gaps)}."


def _each(gaps: Sequence[float]) -> str:
    return ", ".join(f"{gap:+.1f}" for gap in gaps)
