"""The loop over epochs and steps, the same for every method, and how its state is saved and put back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from preceptor.distill.checkpoint import Checkpoint, load_optimizer, optimizer_tensors
from preceptor.distill.devices import on_first_process, seed_step
from preceptor.distill.evaluate import evaluate
from preceptor.distill.graph import GraphedStep
from preceptor.distill.inputs import Normalise, mixup_share
from preceptor.distill.losses import Method
from preceptor.distill.monitor import CHECK_EVERY, Monitor, check_weights
from preceptor.distill.optimise import MovingAverage, set_learning_rate, weights_of
from preceptor.distill.progress import Reporter
from preceptor.distill.recipe import Recipe, learning_rate, mixes_at
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.step import StepInputs, TrainingStep

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_CHECKPOINT_SECONDS = 10.0  # an epoch's end writes a checkpoint, but not more often than this


@dataclass(frozen=True)
class Job:
    """All that is fixed before the first step."""

    fabric: Fabric
    recipe: Recipe
    seed: int
    num_classes: int
    num_train: int
    steps_per_epoch: int
    student: nn.Module
    method: Method
    normalise: Normalise
    optimizer: Any
    average: MovingAverage | None
    step: TrainingStep | GraphedStep
    train_loader: Any
    watch: str | None  # "validation" decides when to stop; "test" is only looked at
    watch_loader: Any
    folder: RunFolder | None
    checkpoint_every: int | None
    evaluate_every: int
    reporter: Reporter | None


class Loop:
    """One training. What moves is here; everything a resumption needs is in `checkpoint` and `restore`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.step = 0
        self.epoch = 0  # finished epochs
        self.elapsed = 0.0  # seconds before this process began
        self.history: list[dict[str, Any]] = []
        self.monitor = Monitor(job.fabric)
        self.best_accuracy, self.best_epoch = -1.0, -1
        self.best: dict[str, Tensor] | None = None
        self.stopped = False
        self._began = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Training time, earlier parts of a resumed run included."""
        return self.elapsed + time.monotonic() - self._began

    def run(self) -> None:
        """Train to the end of the recipe or until the validation accuracy has stopped rising."""
        reporter = self.job.reporter
        self.job.student.train()
        self.job.method.train()
        if reporter is not None:
            reporter.start(self.step, self.epoch)
        try:
            while self.epoch < self.job.recipe.epochs and not self.stopped:
                self._run_epoch()
                self._finish_epoch()
        except Exception:
            if self.job.folder is not None and self.job.fabric.is_global_zero:
                self.job.folder.forget()
            raise
        finally:
            if reporter is not None:
                reporter.close()

    def final_state(self) -> dict[str, Tensor] | None:
        """The weights the training ends with; None means the student's own."""
        if self.best is not None:
            return self.best
        return None if self.job.average is None else self.job.average.average

    def _run_epoch(self) -> None:
        done = self.step - self.epoch * self.job.steps_per_epoch
        batches = self.job.train_loader.epoch(self.epoch, start_step=done)
        for place in range(done, self.job.steps_per_epoch):
            self._train_on(next(batches), place)

    def _own_share(self) -> float:
        """Of an image in its mixture at this step; 1 where images are left as they are."""
        recipe, seed = self.job.recipe, self.job.seed
        mixes = mixes_at(recipe, self.step, self.job.steps_per_epoch)
        return mixup_share(recipe.mixup, seed, self.step) if mixes else 1.0

    def _train_on(self, batch: Any, place: int) -> None:
        job, recipe, device = self.job, self.job.recipe, self.job.fabric.device
        batch_size = min(recipe.batch_size, job.num_train)
        rows = min(batch_size, job.num_train - place * batch_size)
        own = self._own_share() if recipe.mixup else None
        inputs = StepInputs(
            batch.images,
            batch.labels,
            batch.indices,
            batch.weights,
            torch.full((), float(rows), device=device),
            None if own is None else torch.full((), own, device=device),
        )
        seed_step(job.seed, self.step, job.fabric.global_rank, device)
        set_learning_rate(job.optimizer, learning_rate(recipe, self.step, job.steps_per_epoch))
        values = job.step(inputs, self.step / (recipe.epochs * job.steps_per_epoch))
        self.monitor.add(self.step, job.step.names, values, rows)
        self.step += 1
        if job.reporter is not None:
            job.reporter.advance()
        if self.step % CHECK_EVERY == 0:
            terms = self.monitor.check(self._last_checkpoint())
            if job.reporter is not None:
                job.reporter.losses(terms)
        if job.checkpoint_every and self.step % job.checkpoint_every == 0:
            self.save()

    def _finish_epoch(self) -> None:
        job = self.job
        terms = self.monitor.check(self._last_checkpoint())
        last = self.epoch + 1 == job.recipe.epochs
        record = {
            "epoch": self.epoch,
            "step": self.step,
            "lr": learning_rate(job.recipe, self.step - 1, job.steps_per_epoch),
            **self.monitor.summary(),
        }
        if job.watch is not None and (last or (self.epoch + 1) % job.evaluate_every == 0):
            with weights_of(job.student, None if job.average is None else job.average.average):
                found = evaluate(job.student, job.watch_loader, job.normalise, job.num_classes, job.fabric)
                record |= {f"{job.watch}_accuracy": found.accuracy, f"{job.watch}_loss": found.loss}
                if job.recipe.patience:
                    self._judge(found.accuracy)
        record["seconds"] = round(self.seconds, 3)
        self.history.append(record)
        if job.folder is not None:
            folder = job.folder
            on_first_process(job.fabric, lambda: folder.append_log(record))
        if job.reporter is not None:
            job.reporter.losses(terms)
            job.reporter.epoch(record)
        self.epoch += 1
        if self._due(last or self.stopped):
            self.save()

    def _judge(self, accuracy: float) -> None:
        """Early stopping: keep the best weights; stop after `patience` epochs without better ones."""
        if accuracy > self.best_accuracy:
            self.best_accuracy, self.best_epoch = accuracy, self.epoch
            self.best = {
                name: value.detach().clone() for name, value in self.job.student.state_dict().items()
            }
        self.stopped = self.epoch - self.best_epoch >= self.job.recipe.patience

    def _due(self, last: bool) -> bool:
        if self.job.folder is None:
            return False
        ripe = last or (
            self.job.checkpoint_every is None and time.monotonic() - self._saved >= _CHECKPOINT_SECONDS
        )
        # The clocks of the processes differ; the first one decides.
        return on_first_process(self.job.fabric, lambda: ripe)

    def _last_checkpoint(self) -> str:
        folder = self.job.folder
        return "there is no run folder to go back to" if folder is None else folder.last_checkpoint()

    def save(self) -> None:
        """Write a checkpoint, after making sure that it is a good one."""
        folder = self.job.folder
        if folder is None:
            return
        self.monitor.check(folder.last_checkpoint())
        weights = [*self.job.student.parameters(), *self.job.method.parameters()]
        check_weights(weights, self.step, folder.last_checkpoint())
        checkpoint = self.checkpoint(folder.log_size())
        on_first_process(self.job.fabric, lambda: folder.save_checkpoint(checkpoint))
        self._saved = time.monotonic()

    def checkpoint(self, log_size: int) -> Checkpoint:
        """Everything that moves."""
        job = self.job
        sums, noted = self.monitor.state()
        sections = {
            "student": job.student.state_dict(),
            "method": job.method.state_dict(),
            "optimizer": optimizer_tensors(job.optimizer),
            "ema": {} if job.average is None else job.average.average,
            "best": self.best or {},
            "monitor": sums,
        }
        values = {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "monitor": noted,
            "best_accuracy": self.best_accuracy,
            "best_epoch": self.best_epoch,
            "stopped": self.stopped,
            "log_size": log_size,
            "scaler": job.fabric.strategy.precision.state_dict(),
        }
        tensors = {
            f"{name}/{key}": value for name, section in sections.items() for key, value in section.items()
        }
        return Checkpoint(self.step, tensors, values)

    def restore(self, checkpoint: Checkpoint, history: list[dict[str, Any]]) -> None:
        """Put everything back as it was at `checkpoint`."""
        job, values = self.job, checkpoint.values
        job.student.load_state_dict(checkpoint.section("student"))
        job.method.load_state_dict(checkpoint.section("method"))
        load_optimizer(job.optimizer, checkpoint.section("optimizer"))
        if job.average is not None:
            job.average.load(checkpoint.section("ema"))
        self.best = {k: v.to(job.fabric.device) for k, v in checkpoint.section("best").items()} or None
        self.best_accuracy, self.best_epoch = values["best_accuracy"], values["best_epoch"]
        self.stopped = values["stopped"]
        self.step, self.epoch, self.elapsed = checkpoint.step, values["epoch"], values["seconds"]
        self.monitor.load(checkpoint.section("monitor"), values["monitor"])
        if values["scaler"]:
            job.fabric.strategy.precision.load_state_dict(values["scaler"])
        self.history = history
