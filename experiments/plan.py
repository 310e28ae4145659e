"""Which parts of which jobs train together, and how long that will take."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.jobs import Job
from experiments.variants import stages_of
from preceptor.files import write_atomically

# Seconds for one pass of one student over one image in training, teacher included, on one H200 (packs of 16). Of the
# MobileNets, at 112 px, the narrowest and the widest were measured; the two between them and ResNet-50 are guessed.
GUESSES = {"wrn-16-1": 3.7e-6, "wrn-16-2": 8e-6, "wrn-40-1": 1.1e-5, "wrn-40-2": 2.2e-5, "resnet-18": 3e-5,
           "mobilenet-0.25": 1.2e-5, "mobilenet-0.5": 2e-5, "mobilenet-0.75": 3e-5, "mobilenet-1.0": 4e-5,
           "resnet-50": 1.2e-4}  # fmt: skip
OTHER = 3e-5
EAGER = 10.0  # how many times longer a student takes outside a graph
SETUP = 30.0  # seconds to compile and capture a pack, before one was measured


@dataclass(frozen=True)
class Part:
    """One stage of a job."""

    job: Job
    stage: int

    @property
    def last(self) -> bool:
        """Whether it ends in a row."""
        return self.stage == len(stages_of(self.job.method)) - 1


def packs(jobs: Iterable[Job], size: int, waiting: Callable[[Job, int], bool]) -> list[list[Part]]:
    """Jobs in packs of at most `size` students, tiers and groups in the order in which they come.

    Methods of two stages have their first in an early pack of their group and the second in a later one, each
    beside other students; `waiting(job, stage)` says that a stage has been done and its student waits.
    """
    groups: dict[tuple, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.tier):
        groups.setdefault(job.group, []).append(job)
    return [pack for group in groups.values() for pack in _split(group, size, waiting)]


def _split(group: list[Job], size: int, waiting: Callable[[Job, int], bool]) -> list[list[Part]]:
    early, middle, late = [], [], []
    for job in group:
        stages = len(stages_of(job.method))
        if stages == 1:
            middle.append(Part(job, 0))
            continue
        if not waiting(job, 0):
            early.append(Part(job, 0))
        late.append(Part(job, 1))
    parts = [*early, *middle, *late]
    count = max(math.ceil(len(parts) / size), 2 if early else 1)
    share = math.ceil(len(parts) / count)
    found = [parts[start : start + share] for start in range(0, len(parts), share)]
    for one in found:  # a pack cannot hold both stages of a job
        if {p.job for p in one if p.stage == 0} & {p.job for p in one if p.stage == 1}:
            cut = next(k for k, p in enumerate(parts) if p.stage == 1)
            return [parts[:cut][s : s + size] for s in range(0, cut, size)] + [
                parts[cut:][s : s + size] for s in range(0, len(parts) - cut, size)
            ]
    return found


class Pace:
    """Seconds that trainings took, kept in a file, and what they will take."""

    def __init__(self, path: Path) -> None:
        self.path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self.paces: dict[str, float] = held.get("paces", {})
        self.setup: float = held.get("setup", SETUP)
        self.eager: list[str] = held.get("eager", [])

    def estimate(self, passes: Iterable[tuple[str, float]], eager: bool = False) -> float:
        """Seconds for students given as (architecture, images times epochs)."""
        return self.setup + sum(self._pace(arch, eager) * images for arch, images in passes)

    def _pace(self, arch: str, eager: bool) -> float:
        guess = GUESSES.get(arch, OTHER) * (EAGER if eager else 1)
        return self.paces.get(f"{arch} eager" if eager else arch, guess)

    def learn(
        self, passes: list[tuple[str, float]], seconds: float, setup: float, eager: bool = False
    ) -> None:
        """Note what a pack took; all its architectures share the error of the estimate."""
        factor = seconds / max(self.estimate(passes, eager) - self.setup, 1e-9)
        for arch in {arch for arch, _ in passes}:
            self.paces[f"{arch} eager" if eager else arch] = factor * self._pace(arch, eager)
        self.setup = setup
        self._save()

    def remember_eager(self, methods: Iterable[str]) -> None:
        """Methods that cannot be recorded in a graph; they get packs of their own from here on."""
        self.eager = sorted({*self.eager, *methods})
        self._save()

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        held = {"paces": self.paces, "setup": self.setup, "eager": self.eager}
        write_atomically(self.path, (json.dumps(held, indent=1) + "\n").encode())  # others may be reading
