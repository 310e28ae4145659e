"""Runs jobs in packs within a budget of seconds; what is done stays done."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from experiments import results
from experiments.jobs import Job, TeacherSpec, digest
from experiments.lab import Lab, save, teachers_of
from experiments.packed import Pack
from experiments.plan import Pace, Part, packs
from experiments.pupils import Scene, Tutor
from experiments.rows import Rows
from experiments.schedule import PLAIN, small_set
from experiments.sittings import Sitting, TimeIsOver
from experiments.variants import PROBED
from preceptor.data.protocol import overlap


def done(lab: Lab, jobs: Iterable[Job]) -> dict[Job, dict[str, Any]]:
    """The jobs that have their row, with it.

    A student that measurements need has to be at hand, too: its row alone may be of teachers that are gone, and what
    is measured on others like them would not belong to it.
    """
    rows = Rows(lab.results)
    here = [job for job in jobs if not job.keep or lab.student_path(job).exists()]
    return {job: row for job in here if (row := rows.row(job)) is not None}


class Runner:
    """Trains what is missing.

    Args:
        lab: Data, teachers, device.
        budget: Seconds after which the pack at work is kept and put aside.
        size: Students in one pack at most.
        log: Where to say what happens.
    """

    def __init__(
        self, lab: Lab, budget: float = math.inf, size: int = 16, log: Callable[[str], None] = print
    ) -> None:
        self.lab, self.size, self.log = lab, size, log
        self.pace = Pace(lab.work / "pace.json")
        self.sitting = Sitting(lab.packs, budget, log)

    def run(self, jobs: Sequence[Job]) -> int:
        """Train in order of priority; returns how many jobs are still without a row."""
        have = done(self.lab, jobs)
        todo = [job for job in jobs if job not in have]
        self.log(f"{len(have)} of {len(jobs)} trainings are there, {len(todo)} to do")
        eager = [job for job in todo if job.method in self.pace.eager]
        plain = [job for job in todo if job.method not in self.pace.eager]
        try:
            for some, graphed in ((plain, True), (eager, False)):
                for parts in packs(
                    some, self.size, lambda job, stage: self.lab.stage_path(job, stage).exists()
                ):
                    self._pack(self._ready(parts), graphed)
        except TimeIsOver:
            self.log("time is over")
        left = len(jobs) - len(done(self.lab, jobs))
        self.log(f"{left} trainings left" if left else "all trainings are there")
        return left

    def teachers(self, jobs: Sequence[Job]) -> int:
        """Train the teachers of all jobs and no student; returns how many teachers are still missing."""
        specs = [spec for job in jobs for spec in teachers_of(job)]
        try:
            self._teachers(specs)
        except TimeIsOver:
            self.log("time is over")
        return len(self.lab.missing(specs))

    def forecast(self, jobs: Sequence[Job]) -> int:
        """Say what there is to do and how long it may take; nothing is read or trained."""
        have = done(self.lab, jobs)
        todo = [job for job in jobs if job not in have]
        total = 0.0
        planned = packs(todo, self.size, lambda job, stage: self.lab.stage_path(job, stage).exists())
        for parts in planned:
            job, kind = parts[0].job, self.lab.scale.kind(parts[0].job.data)
            images = (job.per_class or kind.per_class) * len(kind.chosen(job.task))
            epochs = small_set(images, job.epochs, job.batch, job.recipe)[1] if job.per_class else job.epochs
            seconds = self.pace.estimate([(p.job.student, float(images * epochs)) for p in parts])
            total += seconds
            self.log(f"{self._where(job)}: {len(parts)} students, about {seconds:.0f} s")
        missing = self.lab.missing(spec for job in todo for spec in teachers_of(job))
        self.log(f"{len(have)} of {len(jobs)} are there; {len(planned)} packs, about {total / 60:.0f} minutes, "
                 f"after {len(missing)} teachers")  # fmt: skip
        return len(todo)

    def _ready(self, parts: list[Part]) -> list[Part]:
        """Without the second stages whose first was not started."""
        return [p for p in parts if p.stage == 0 or self.lab.stage_path(p.job, p.stage - 1).exists()]

    def _pack(self, parts: list[Part], graphed: bool) -> None:
        if self.lab.device == "cuda":
            gc.collect()  # the graph of the pack before holds memory
            torch.cuda.empty_cache()
        if parts:
            self._teachers([spec for part in parts for spec in teachers_of(part.job)])
            self._train(parts, graphed)

    def _teachers(self, specs: Iterable[TeacherSpec]) -> None:
        """Train the teachers that are missing, those of one task together."""
        missing = self.lab.missing(specs)
        for key in dict.fromkeys((s.data, s.task, s.seed, s.epochs) for s in missing):
            self.sitting.check()
            some = [s for s in missing if (s.data, s.task, s.seed, s.epochs) == key]
            images = len(self.lab.task(key[0], key[1])[0]) * key[3]
            began = time.perf_counter()
            seconds = self.lab.train_teachers(some, self.sitting)
            self.pace.learn([(s.arch, images) for s in some], seconds, time.perf_counter() - began - seconds)
            self.log(f"teachers {', '.join(spec.name for spec in some)} ({seconds:.0f} s)")

    def _passes(self, parts: list[Part]) -> list[tuple[str, float]]:
        job = parts[0].job
        images = len(self.lab.images(job)[0])
        return [(p.job.student, float(images * self.lab.schedule(job, images).epochs)) for p in parts]

    def _train(self, parts: list[Part], graphed: bool, merged: bool = True) -> None:
        merged = merged and self.lab.merged
        self.sitting.check()
        began = time.perf_counter()
        job = parts[0].job
        train, test = self.lab.images(job)
        source = self.lab.source(job.data)
        schedule = self.lab.schedule(job, len(train))
        names = self.lab.task(job.data, job.task)[2]
        scene = self.lab.scene(train, names, source, schedule, job.batches)
        pack = Pack(self._students(parts, scene), scene, graphed, merged)
        if pack.graphed and (found := pack.waits_for_host()):
            self._apart(parts, found)
            return
        name = digest([merged, *([part.job.digest(), part.stage] for part in parts)])
        seconds = self.sitting.train(pack, name, self._where(job))
        if any(part.last for part in parts):
            pack.evaluate(test)
        # In a merged network, one that diverges may take its neighbours along: those have to go again, apart.
        lost = [p for p, s in zip(parts, pack.students, strict=True) if not math.isfinite(s.final_loss)]
        again = lost if merged and len(pack.choirs) < len(parts) else []
        self._keep(parts, pack, seconds, again)
        self.sitting.forget(name)
        self.pace.learn(self._passes(parts), seconds, time.perf_counter() - began - seconds, not graphed)
        if again:
            self.log(f"once more, apart: {', '.join(p.job.name for p in again)}")
            self._train(again, graphed, merged=False)

    def _students(self, parts: list[Part], scene: Scene) -> list[Any]:
        tutors: dict[TeacherSpec, Tutor] = {}
        students = []
        for part in parts:
            job, probe = part.job, None
            if job.teacher in teachers_of(job) and job.teacher not in tutors:
                tutors[job.teacher] = self.lab.tutor(job, scene.data)
            if job.method in PROBED:
                probe = self.lab.probe(job, tutors[job.teacher].outputs)
            students.append(self.lab.pupil(job, part.stage, tutors.get(job.teacher), probe))
        return students

    def _apart(self, parts: list[Part], found: list[int]) -> None:
        """Students whose step waits for the host train outside of a graph, so that the others need not."""
        waiting = [part for place, part in enumerate(parts) if place in found]
        self.pace.remember_eager(part.job.method for part in waiting)
        self.log(f"not for a graph: {', '.join(sorted({p.job.method for p in waiting}))}")
        self._pack([part for part in parts if part not in waiting], True)
        self._pack(waiting, False)

    def _keep(self, parts: list[Part], pack: Pack, seconds: float, but: list[Part]) -> None:
        rows: dict[str, list[dict[str, Any]]] = {}
        for part, student in zip(parts, pack.students, strict=True):
            if part in but:
                continue
            if not part.last:
                save(student.network, self.lab.stage_path(part.job, part.stage))
                continue
            if part.job.keep:
                save(student.network, self.lab.student_path(part.job))
            rows.setdefault(part.job.experiment, []).append(self._row(part.job, pack, student, seconds))
        for experiment, some in rows.items():
            results.append(self.lab.results / f"{experiment}.jsonl", some)
        told = ", ".join(f"{p.job.student} {p.job.name} {p.job.seed}: " + (f"{100 * s.accuracy:.1f}" if p.last else "…")
                         for p, s in zip(parts, pack.students, strict=True))  # fmt: skip
        self.log(f"{self._where(parts[0].job)} ({seconds:.0f} s, {self.sitting.left:.0f} s left): {told}")

    def _row(self, job: Job, pack: Pack, student: Any, seconds: float) -> dict[str, Any]:
        sound = math.isfinite(student.accuracy)
        return {
            **job.identity(), "options": job.settings(), "overlap": self.overlap(job),
            "teacher_weights": self.lab.weights_of(job.teacher) if job.teacher in teachers_of(job) else None,
            "batch": pack.batch, "batches": pack.scene.seed, "epochs_run": pack.schedule.epochs,
            "mixup": pack.schedule.mixup, "precision": "bfloat16" if pack.bfloat16 else "float32",
            "seconds": round(seconds / len(pack.students), 2),
            "diverged": not sound, "accuracy": student.accuracy if sound else None,
            "loss": student.final_loss if math.isfinite(student.final_loss) else None,
        }  # fmt: skip

    def overlap(self, job: Job) -> float:
        """The share of the student's classes that the teacher knows."""
        return overlap(
            self.lab.task(job.teacher.data, job.teacher.task)[2], self.lab.task(job.data, job.task)[2]
        )

    def _where(self, job: Job) -> str:
        which = "" if job.per_class is None else f", {job.per_class} a class"
        which += "" if job.per_class is None and job.recipe == PLAIN else f", {job.recipe}"
        return f"{job.experiment} {job.data} task {job.task} batches {job.batches}{which}"
