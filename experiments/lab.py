"""What trainings and measurements are made from: data, teachers (trained on demand and kept), their outputs, probes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor, nn

from experiments import results, sources
from experiments.images import Images
from experiments.jobs import Job, Scale, TeacherSpec, digest
from experiments.packed import Pack
from experiments.passes import clean_outputs
from experiments.pupils import Scene, Student, Tutor
from experiments.schedule import RECIPES, Schedule, small_set
from experiments.sittings import Sitting
from experiments.variants import FINETUNE_RATE, conditional_cost, stages_of
from preceptor import ot
from preceptor.core import Outputs
from preceptor.distill.losses import METHODS, Probe, fit_probe
from preceptor.files import write_atomically
from preceptor.models import build

GLANCE = 100
VALIDATION = 0.2  # of each class, the same images for all seeds


@dataclass(frozen=True)
class RandomNetwork:
    """A network that has learnt nothing."""

    arch: str
    seed: int


@dataclass
class Lab:
    """A place to work: data, a folder for what is kept, a device."""

    scale: Scale
    work: Path
    data: Path | None = None
    results: Path = results.RESULTS
    device: str = "cpu"
    compiled: bool = False
    bfloat16: bool = False  # training on the CPU; on a GPU it is always so
    merged: bool = True  # students of one architecture are made one network

    def __post_init__(self) -> None:
        self._sources: dict[str, sources.Source] = {}
        self._kept: dict[tuple, Any] = {}

    @property
    def packs(self) -> Path:
        """Where packs at work are kept."""
        return self.work / "packs"

    def source(self, name: str) -> sources.Source:
        """Data by name, read once."""
        if name not in self._sources:
            self._sources[name] = self._read(name)
        return self._sources[name]

    def _read(self, name: str) -> sources.Source:
        if name in sources.HALVES:
            return sources.half(self.source("cifar100"), name)
        if self.scale.smoke:
            return sources.toy(name, self.device)
        if self.data is None:
            raise SystemExit(f"{name} is real data: say with --data where it lies, or use --scale smoke")
        return sources.load(name, self.data, self.device)

    def _once(self, key: tuple, make: Callable[[], Any]) -> Any:
        """The one value under a key, made when it is first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def network(self, arch: str, classes: int, data: str, seed: int | None) -> nn.Module:
        """A fresh network on the device."""
        shape = self.source(data).train.shape
        return build(arch, classes, shape, seed=seed).to(self.device).to(memory_format=torch.channels_last)

    # Teachers

    def path(self, spec: TeacherSpec) -> Path:
        """Where a teacher is kept."""
        return self.work / "teachers" / f"{spec.name}.safetensors"

    def weights_of(self, spec: TeacherSpec) -> str:
        """A short name of a teacher's very weights: two trainings from one seed need not end in the same."""
        return self._once(
            ("weights", spec), lambda: hashlib.sha256(self.path(spec).read_bytes()).hexdigest()[:16]
        )

    def missing(self, specs: Iterable[TeacherSpec]) -> list[TeacherSpec]:
        """Teachers that are still to be trained."""
        return [spec for spec in dict.fromkeys(specs) if not self.path(spec).exists()]

    def scene(
        self, train: Images, names: tuple[str, ...], source: sources.Source, schedule: Schedule, seed: int
    ) -> Scene:
        """What the students of a pack share."""
        return Scene(train, names, source.mean, source.std, schedule, seed, self.compiled, self.bfloat16)

    def train_teachers(self, specs: list[TeacherSpec], sitting: Sitting | None = None) -> float:
        """Train teachers of one task side by side and keep them; returns the seconds."""
        sitting = sitting or Sitting(self.packs)
        first = specs[0]
        source = self.source(first.data)
        train, test, names = source.task(first.task)
        students = []
        for spec in specs:
            network = self.network(spec.arch, len(names), spec.data, spec.seed)
            method, options = METHODS["none"], {}
            if spec.friend is not None:
                friend = self.network(spec.friend, len(names), spec.data, None).eval()
                with torch.no_grad():
                    shape = friend.outputs(torch.zeros(2, *train.shape, device=self.device))
                method, options = METHODS["sftn-teacher"], {"student_shape": shape}
            students.append(Student(network, method, options, seed=spec.seed))
        schedule = Schedule(first.epochs, source.kind.batch, milestones=source.kind.milestones)
        pack = Pack(students, self.scene(train, names, source, schedule, first.seed), merged=self.merged)
        name = digest([spec.name for spec in specs])
        seconds = sitting.train(pack, name, f"teachers of {first.data}, task {first.task}")
        pack.evaluate(test)
        for spec, student in zip(specs, students, strict=True):
            save(student.network, self.path(spec))
        rows = [{"data": s.data, "task": s.task, "arch": s.arch, "seed": s.seed, "epochs": s.epochs,
                 "friend": s.friend, "accuracy": t.accuracy, "seconds": round(seconds / len(specs), 2)}
                for s, t in zip(specs, students, strict=True)]  # fmt: skip
        results.append(self.results / "teachers.jsonl", rows)
        sitting.forget(name)
        return seconds

    def teacher(self, spec: TeacherSpec) -> nn.Module:
        """A teacher in evaluation mode, trained if it is not there."""
        return self._once(("teacher", spec), lambda: self._teacher(spec))

    def _teacher(self, spec: TeacherSpec) -> nn.Module:
        if self.missing([spec]):
            self.train_teachers([spec])
        classes = len(self.source(spec.data).kind.chosen(spec.task))
        network = self.network(spec.arch, classes, spec.data, None)
        network.load_state_dict(load_file(self.path(spec), device=self.device))
        return network.eval().requires_grad_(False)

    def task(self, data: str, number: int) -> tuple[Images, Images, tuple[str, ...]]:
        """Train and test images of a task and its class names."""
        return self._once(("task", data, number), lambda: self.source(data).task(number))

    def outputs(self, network: nn.Module, data: str, images: Images) -> Outputs:
        """Clean features and logits, as methods and metrics take them."""
        source = self.source(data)
        features, logits = clean_outputs(network, images, source.mean, source.std)
        return Outputs(features.cpu().numpy(), logits.cpu().numpy(), images.labels.cpu().numpy())

    def centers(self, spec: TeacherSpec) -> Tensor:
        """Means of a teacher's features over the classes of its own training set: (C_T, d)."""
        return self._once(
            ("centers", spec), lambda: self.class_means(self.teacher(spec), spec.data, spec.task)
        )

    def class_means(self, network: nn.Module, data: str, task: int) -> Tensor:
        """Means of any network's features over a task's training images: (C, d)."""
        train, _, names = self.task(data, task)
        own = self.outputs(network, data, train)
        return ot.class_centers(torch.from_numpy(own.features), torch.from_numpy(own.labels), len(names))

    def glance(self, network: TeacherSpec | RandomNetwork, data: str, task: int) -> Outputs:
        """Outputs over up to 100 training images of each class of a task, which is enough for measurements."""
        whole = self._once(("glance", network, data), lambda: self._glance(network, data))
        chosen = self.source(data).kind.chosen(task)
        places = np.full(int(whole.labels.max()) + 1, -1)
        places[list(chosen)] = np.arange(len(chosen))
        rows = np.flatnonzero(places[whole.labels] >= 0)
        return Outputs(whole.features[rows], whole.logits[rows], places[whole.labels[rows]])

    def _glance(self, network: TeacherSpec | RandomNetwork, data: str) -> Outputs:
        images = self.source(data).train.per_class(GLANCE, seed=0)
        if isinstance(network, RandomNetwork):
            return self.outputs(self.network(network.arch, 2, data, network.seed), data, images)
        return self.outputs(self.teacher(network), data, images)

    # What one job needs

    def images(self, job: Job) -> tuple[Images, Images]:
        """What it trains on and what it is evaluated on."""
        train, test, _ = self.task(job.data, job.task)
        if job.split == "validation":
            train, test = train.held_out(VALIDATION, seed=0)
        return (train if job.per_class is None else train.per_class(job.per_class, job.seed)), test

    def schedule(self, job: Job, images: int) -> Schedule:
        """The data's schedule, in batches and epochs that fit the number of images."""
        batch, epochs = job.batch, job.epochs
        if job.per_class is not None:
            batch, epochs = small_set(images, epochs, batch, job.recipe)
        milestones, recipe = self.source(job.data).kind.milestones, RECIPES[job.recipe]
        return Schedule(
            epochs, batch, milestones=milestones, mixup=recipe.mixup, mixup_until=recipe.mixup_until
        )

    def tutor(self, job: Job, train: Images) -> Tutor:
        """The job's teacher, having seen the training set."""
        names = self.task(job.teacher.data, job.teacher.task)[2]
        seen = self.outputs(self.teacher(job.teacher), job.data, train)
        return Tutor(self.teacher(job.teacher), names, self.centers(job.teacher), seen)

    def student(self, job: Job) -> nn.Module:
        """The network at the beginning of the first stage."""
        classes = len(self.task(job.data, job.task)[2])
        network = self.network(job.student, classes, job.data, job.seed)
        if job.method == "finetune":
            taken = {k: v for k, v in self.teacher(job.teacher).state_dict().items() if "classifier" not in k}
            missing, surplus = network.load_state_dict(taken, strict=False)
            if surplus or any("classifier" not in key for key in missing):
                raise ValueError(f"fine-tuning takes the teacher's own architecture, not {job.student}")
        return network

    def pupil(self, job: Job, stage: int, tutor: Tutor | None, probe: Probe | None) -> Student:
        """The job as a student of a pack, at one of its stages."""
        network = self.student(job)
        if stage:
            network.load_state_dict(load_file(self.stage_path(job, stage - 1), device=self.device))
        stages = stages_of(job.method)
        options = self._resolved(job, tutor) if stage == len(stages) - 1 else {}
        if probe is not None:
            options.setdefault("probe", probe)
        used = tutor if "teacher" in stages[stage].needs else None
        rate = FINETUNE_RATE if job.method == "finetune" else 1.0
        return Student(network, stages[stage], options, used, rate, job.seed)

    def stage_path(self, job: Job, stage: int) -> Path:
        """Where a student waits between two stages."""
        return self.work / "stages" / f"{job.digest()}-{stage}.safetensors"

    def student_path(self, job: Job) -> Path:
        """Where a trained student is kept for measurements."""
        return self.work / "students" / f"{job.digest()}.safetensors"

    def probe(self, job: Job, outputs: Outputs) -> Probe:
        """The linear probe on the teacher's features, fitted once for all students that share it, and kept."""
        path = self.work / "probes" / ("-".join(map(str, (
            job.teacher.name, "on", job.data, job.task, job.per_class, job.seed if job.per_class else 0, job.split,
        ))) + ".safetensors")  # fmt: skip
        if not path.exists():
            classes = int(outputs.labels.max()) + 1
            sides = (torch.from_numpy(side).to(self.device) for side in (outputs.features, outputs.labels))
            probe = fit_probe(*sides, classes)
            parts = {"weight": probe.weight, "bias": probe.bias, "penalty": torch.tensor(probe.penalty)}
            write_tensors(parts, path)
        held = load_file(path)
        return Probe(held["weight"], held["bias"], float(held["penalty"]))

    def _resolved(self, job: Job, tutor: Tutor | None) -> dict[str, Any]:
        """The job's options, those that begin with @ computed."""
        options = dict(job.options)
        for name, value in options.items():
            if isinstance(value, str) and value.startswith("@"):
                options[name] = self._computed(value, job, tutor)
        return options

    def _computed(self, value: str, job: Job, tutor: Tutor | None) -> Any:
        if value == "@superclasses":
            return dict(self.source(job.data).superclasses)
        if value == "@conditional" and tutor is not None:
            return conditional_cost(tutor.outputs, len(self.task(job.data, job.task)[2]))
        flags = {name: bool(job.settings().get(name)) for name in ("normalize", "center")}
        if value == "@random":  # Tab. 8, II: a network of the teacher's structure that has learnt nothing
            random = self.network(job.teacher.arch, 2, job.teacher.data, seed=job.seed).eval()
            sides = (self.class_means(random, d, t) for d, t in
                     ((job.teacher.data, job.teacher.task), (job.data, job.task)))  # fmt: skip
            return ot.cost_matrix(*sides, **flags)
        if value.startswith("@shallow:"):  # Tab. 8, IV: the cost that a smaller teacher of the same task sees
            spec = shallow_spec(job, value)
            rows = self.teacher(spec).classifier.weight.detach().float().cpu()
            return ot.cost_matrix(rows, self.class_means(self.teacher(spec), job.data, job.task), **flags)
        raise ValueError(f"option {value!r} is unknown")


def shallow_spec(job: Job, value: str) -> TeacherSpec:
    """The smaller teacher that ``@shallow:ARCH`` speaks of."""
    return TeacherSpec(
        job.teacher.data, job.teacher.task, value.split(":")[1], job.teacher.seed, job.teacher.epochs
    )


def teachers_of(job: Job) -> list[TeacherSpec]:
    """All teachers that a job cannot start without."""
    needed = [
        shallow_spec(job, v) for _, v in job.options if isinstance(v, str) and v.startswith("@shallow:")
    ]
    uses = job.method == "finetune" or any("teacher" in stage.needs for stage in stages_of(job.method))
    return [*needed, job.teacher] if uses else needed


def save(network: nn.Module, path: Path) -> None:
    """Keep a network's weights."""
    write_tensors(network.state_dict(), path)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Keep tensors; the file appears whole or not at all, whoever else may be writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(
        path, serialised({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})
    )
