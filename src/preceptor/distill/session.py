"""One training from its settings to its result: builds the job, runs the loop, writes the run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from preceptor.core import PreceptorError
from preceptor.data.split import Split
from preceptor.data.task import Task, never_held_out
from preceptor.data.unlabelled import beside, overlaps
from preceptor.devices import lay_out
from preceptor.distill.collectives import Group, join
from preceptor.distill.devices import on_first_process
from preceptor.distill.energy import EnergyMeter
from preceptor.distill.evaluate import evaluate, feature_means
from preceptor.distill.evidence import circumstances, hardware, plain
from preceptor.distill.graph import GraphedStep
from preceptor.distill.inputs import (
    InputSpec,
    Normalise,
    cut_to_squares,
    input_spec,
    view_side,
    views_not_taken,
)
from preceptor.distill.loop import Job, Loop
from preceptor.distill.losses import Context, Method
from preceptor.distill.losses.table import default_options
from preceptor.distill.optimise import MovingAverage, make_optimizer
from preceptor.distill.prepare import (
    EVALUATION_BATCH,
    Data,
    Settings,
    make_context,
    make_method,
    make_student,
)
from preceptor.distill.progress import Reporter
from preceptor.distill.recipe import Recipe, lengthened
from preceptor.distill.result import Result, read_result
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.start import seen_by, start_from
from preceptor.distill.step import TrainingStep
from preceptor.distill.sync_norm import Synchronised, synchronise
from preceptor.distill.teacher_side import GivenTeacher, TeacherSide, check_cacheable
from preceptor.wording import counted, listed

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Session:
    """Everything about one training that the caller decided."""

    task: Task
    student: str | nn.Module
    settings: Settings
    seed: int
    teacher: GivenTeacher | None
    fabric: Fabric
    folder: RunFolder | None
    cache_teacher: bool
    compile_networks: bool
    graphs: bool
    write_centers: bool
    start: GivenTeacher | None = None  # whose weights the student begins with
    unlabelled: Split | None = None  # what the teacher alone says something about
    notes: list[str] = field(default_factory=list)
    synchronised: list[Synchronised] = field(default_factory=list)
    joules: float | None = None  # what the training drew, where that can be read

    def run(
        self,
        *,
        resume: bool,
        tensorboard: bool,
        checkpoint_every: int | None,
        evaluate_every: int,
        progress: bool | None,
        finish: bool,
    ) -> Result:
        """Train and evaluate; with `finish` also write result.json, which marks the run as done."""
        if tensorboard and self.folder is None:
            raise PreceptorError("tensorboard files lie in the run folder; give one with out")
        task, watch, watched = self._splits()
        spec = self._spec(task, resume)
        normalise = Normalise(spec).to(self.fabric.device)
        network = make_student(self.student, task, spec, self.seed)
        if self.start is not None:
            start_from(network, tuple(self.task.classes), self.start)
        network = network.to(self.fabric.device)
        lay_out(network, self.fabric.device, spec.shape)
        teacher = self._teacher_side(normalise, spec)
        wanted = 0 if self.teacher is None else self.teacher.side
        data = Data(self.fabric, spec, self.seed, view_side(task.train, spec, wanted))
        context = make_context(task, task.train, data, network, normalise, teacher, self.seed)
        seen = task.train if self.unlabelled is None else beside(task.train, self.unlabelled)
        recipe = self._lengthen(len(seen))
        self._check(context, len(seen))
        asked = self._config(network, data, teacher)
        config, finished = on_first_process(self.fabric, lambda: self._open(asked, resume))
        if finished is not None:
            assert self.folder is not None
            result = read_result(self.folder, finished, network, config)
            if not on_first_process(self.fabric, self.folder.centers_file.exists):
                self._add_centers(result, normalise)
            return result
        self.notes += cut_to_squares(task.train, task.kind, recipe.image_size)
        self.notes += views_not_taken(spec, recipe.augment, self.cache_teacher)
        job = self._job(task, data, seen, context, normalise, network, teacher, watch, watched)
        # What was refused up to here leaves no folder that seems to hold a run.
        on_first_process(self.fabric, lambda: self.folder.begin(config) if self.folder else None)
        shown = Reporter(
            self.settings.method.name, epochs=recipe.epochs, total_steps=recipe.epochs * job.steps_per_epoch,
            show=progress, tensorboard=self.folder.path / "tensorboard" if tensorboard and self.folder else None,
        ) if self.fabric.is_global_zero else None  # fmt: skip
        every = 1 if recipe.patience else evaluate_every
        loop = Loop(replace(job, reporter=shown, checkpoint_every=checkpoint_every, evaluate_every=every))
        self._restore(loop)
        whole = loop.step == 0
        meter = EnergyMeter(self.fabric.device)
        loop.run()
        self.joules = meter.joules() if whole else None  # a resumed run has drawn more than this process saw
        return self._conclude(loop, config, finish)

    def _splits(self) -> tuple[Task, str | None, Split | None]:
        """The task to train on, and the split that is looked at after each epoch."""
        recipe = self.settings.recipe
        if not recipe.patience:
            return self.task, self.task.judged_by, self.task.test
        smaller, validation = self.task.split_validation(recipe.validation_fraction, self.seed)
        self.notes += never_held_out(self.task)
        return smaller, "validation", validation

    def _lengthen(self, samples: int) -> Recipe:
        """Settle the number of epochs, now that it is known of how many samples they are."""
        before = self.settings.recipe
        recipe = lengthened(before, samples)
        if recipe.epochs > before.epochs:
            self.notes.append(
                f"{counted(recipe.epochs, 'epoch')} instead of {before.epochs}, so that there are "
                f"{recipe.min_steps:,} steps (min_steps)"
            )
        self.settings = replace(self.settings, recipe=recipe)
        return recipe

    def _spec(self, task: Task, resume: bool) -> InputSpec:
        spec = input_spec(task.train, task.kind, self.settings.recipe.image_size)
        spec = spec if self.start is None else seen_by(self.start, spec)
        return self.folder.as_begun(spec) if resume and self.folder is not None else spec

    def _teacher_side(self, normalise: Normalise, spec: InputSpec) -> TeacherSide | None:
        if self.teacher is None:
            return None
        self.teacher.module.to(self.fabric.device)
        side = TeacherSide(self.teacher, normalise=normalise, autocast=self.fabric.autocast)
        own = self.teacher.preprocessing
        lay_out(self.teacher.module, self.fabric.device, spec.shape if own is None else own.input_size)
        side.wants_maps = "maps" in self.settings.method.needs
        return side

    def _check(self, context: Context, count: int) -> None:
        """Refuse unmet needs of the method, outputs that cannot be kept and batches that cannot be dealt out."""
        recipe, method, processes = self.settings.recipe, self.settings.method, self.fabric.world_size
        if self.cache_teacher and self.teacher is not None:
            check_cacheable(recipe, recipe.augment or "none", method)
        method.check(context)
        batch = min(recipe.batch_size, count)
        if batch % processes:
            raise PreceptorError(
                f"a batch of {counted(batch, 'sample')} cannot be dealt out evenly to {processes} processes; "
                "choose a batch size that they divide"
            )

    def _config(self, network: nn.Module, data: Data, teacher: TeacherSide | None) -> dict[str, Any]:
        kind, spec, more = type(network), data.spec, self.unlabelled
        extra = None if more is None else {"samples": len(more), "fingerprint": more.fingerprint}
        return {
            "schema_version": 1,
            "arch": getattr(network, "arch", "") or f"python:{kind.__module__}:{kind.__qualname__}",
            "classes": list(self.task.classes),
            "input_shape": list(spec.shape),
            **({} if data.view == spec.shape[-1] else {"view": data.view}),
            "mean": list(spec.mean),
            "std": list(spec.std),
            "method": self.settings.method.name,
            "method_options": plain(self.settings.options),
            "recipe": plain(self.settings.recipe.to_json()),
            "teacher": None if teacher is None else teacher.given.reference(),
            "cache_teacher": self.cache_teacher,
            **({} if extra is None else {"unlabelled": extra}),
            **({} if self.start is None else {"start_from": self.start.reference()}),
            "seed": self.seed,
            "data": {
                "name": self.task.name,
                "fingerprint": self.task.fingerprint,
                "train": len(self.task.train),
                "test": len(self.task.test),
            },
            **circumstances(self.fabric.device, self.fabric.world_size),
        }

    def _open(self, config: dict[str, Any], resume: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        if self.folder is None:
            return config, None
        # What an older run did not know counts as its default.
        unsaid = {
            "recipe": plain(Recipe().to_json()),
            "method_options": plain(default_options(self.settings.method)),
        }
        return self.folder.prepare(config, resume=resume, defaults=unsaid), self.folder.read_result()

    def _job(
        self,
        task: Task,
        data: Data,
        seen: Split,
        context: Context,
        normalise: Normalise,
        network: nn.Module,
        teacher: TeacherSide | None,
        watch: str | None,
        watched: Split | None,
    ) -> Job:
        recipe, fabric = self.settings.recipe, self.fabric
        if self.unlabelled is not None:
            self.notes += overlaps(self.unlabelled, self.task.train, self.task.test)
        context = replace(context, num_train=len(seen))
        method, outputs = make_method(self.settings, context, data, task.train, teacher)
        if self.cache_teacher and teacher is not None and outputs is not None:
            teacher.keep(outputs)
        self._prepare_networks(network, method)
        plain_optimizer = make_optimizer(recipe, [*network.parameters(), *method.parameters()], fabric.device)
        optimizer: Any = fabric.setup_optimizers(plain_optimizer)
        average = MovingAverage(network, recipe.ema) if recipe.ema else None
        step = TrainingStep(
            fabric=fabric, recipe=recipe, student=network, method=method, teacher=teacher,
            normalise=normalise, optimizer=optimizer, num_classes=len(task.classes), average=average,
            compile_networks=self.compile_networks, labelled=float((seen.labels >= 0).mean()),
        )  # fmt: skip
        loader = data.loader(seen, recipe.batch_size, augment=recipe.augment or "none", train=True)
        return Job(
            fabric=fabric, recipe=recipe, seed=self.seed, num_classes=len(task.classes),
            num_train=len(seen), steps_per_epoch=len(loader), student=network, method=method,
            normalise=normalise, optimizer=optimizer, average=average,
            step=GraphedStep(step) if self.graphs else step,
            train_loader=loader,
            watch=watch, watch_loader=None if watched is None else data.loader(watched, EVALUATION_BATCH),
            folder=self.folder, checkpoint_every=None, evaluate_every=1, reporter=None,
        )  # fmt: skip

    def _prepare_networks(self, network: nn.Module, method: Method) -> None:
        device, processes = self.fabric.device, self.fabric.world_size
        if processes == 1:
            return
        join(method, Group(processes))
        self.synchronised = [synchronise(part, device) for part in (network, method)]
        if left := [name for changes in self.synchronised for name in changes.left]:
            self.notes.append(f"statistics of {listed(left, 3)} are not shared between processes")

    def _restore(self, loop: Loop) -> None:
        if self.folder is None:
            return
        checkpoint = self.folder.load_checkpoint()
        self.fabric.barrier()  # all processes have read before the first one writes
        size = 0 if checkpoint is None else int(checkpoint.values["log_size"])
        on_first_process(self.fabric, lambda: self.folder.cut_log(size))  # type: ignore[union-attr]
        if checkpoint is not None:
            loop.restore(checkpoint, self.folder.read_log())

    def _conclude(self, loop: Loop, config: dict[str, Any], finish: bool) -> Result:
        job = loop.job
        for changes in self.synchronised:
            changes.undo()
        if (state := loop.final_state()) is not None:
            job.student.load_state_dict(state)
        data = Data(self.fabric, InputSpec(tuple(config["input_shape"]), (), ()), self.seed)
        tests = data.loader(self.task.test, EVALUATION_BATCH)
        found = evaluate(job.student, tests, job.normalise, job.num_classes, self.fabric)
        job.student.eval()
        result = Result(
            model=job.student,
            accuracy=found.accuracy,
            per_class_accuracy=dict(zip(self.task.classes, found.per_class_accuracy, strict=True)),
            confusion=found.confusion,
            history=tuple(loop.history),
            config=config,
            path=None if self.folder is None else self.folder.path,
            seconds=round(loop.seconds, 3),
            hardware={
                **hardware(self.fabric.device),
                **({} if self.joules is None else {"joules": self.joules}),
            },
            notes=(*self.notes, *self._stop_note(loop)),
            method_state={name: value.detach().clone() for name, value in job.method.state_dict().items()},
        )
        weights = result.model.state_dict()
        on_first_process(self.fabric, lambda: self.folder.write_model(weights) if self.folder else None)
        self._add_centers(result, job.normalise)
        if finish:
            self.finish(result)
        return result

    def _add_centers(self, result: Result, normalise: Normalise) -> None:
        """Write the class means of the features over the training set, where they are asked for."""
        if not self.write_centers or (folder := self.folder) is None:
            return
        data = Data(self.fabric, InputSpec(tuple(result.config["input_shape"]), (), ()), self.seed)
        loader = data.whole_loader(self.task.train)
        centers = feature_means(result.model, loader, normalise, len(self.task.classes))
        on_first_process(self.fabric, lambda: folder.write_centers(centers))

    def _stop_note(self, loop: Loop) -> list[str]:
        if not self.settings.recipe.patience:
            return []
        best = f"the weights are those of epoch {loop.best_epoch + 1}, best on the validation split"
        return [f"{best} ({100 * loop.best_accuracy:.1f} %), after {counted(loop.epoch, 'epoch')}"]

    def finish(self, result: Result) -> None:
        """Write result.json, the last file."""
        if (folder := self.folder) is not None:
            on_first_process(self.fabric, lambda: folder.write_result(result.to_json()))
