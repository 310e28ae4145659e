"""Many trainings side by side on one GPU, in one process.

Small students leave a GPU idle: their steps are hundreds of launches of tiny kernels. A pack trains all students that
share data, order of data and teacher at once: the batch is drawn and augmented once, the teacher sees it once, each
student runs on its own stream, and the whole step is one CUDA graph. Students of a pack therefore differ in nothing
but their method, which makes their differences paired comparisons. On the CPU the same code runs without the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput
from preceptor.data.augment import Shift
from preceptor.distill.losses import METHODS, Context, Method, Step


@dataclass(frozen=True)
class Images:
    """Small images on the device, as bytes."""

    pixels: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64

    def subset(self, rows: Tensor) -> Images:
        """The given rows."""
        return Images(self.pixels[rows], self.labels[rows])


@dataclass(frozen=True)
class Schedule:
    """The paper's training: SGD with steps in the learning rate."""

    epochs: int = 200
    batch_size: int = 256
    rate: float = 0.1
    factor: float = 0.2
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75)  # as shares of the epochs: 50, 100, 150 of 200
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.rate * self.factor ** sum(epoch >= share * self.epochs for share in self.milestones)


@dataclass
class Student:
    """One training of a pack."""

    network: nn.Module
    method: str | type[Method]
    options: dict
    accuracy: float = float("nan")
    final_loss: float = float("nan")


def _method(student: Student) -> type[Method]:
    return METHODS[student.method] if isinstance(student.method, str) else student.method


class Pack:
    """Students that see the same batches and the same teacher."""

    def __init__(
        self, students: Sequence[Student], data: Images, classes: tuple[str, ...], teacher: nn.Module | None,
        teacher_facts: dict, mean: Tensor, std: Tensor, schedule: Schedule, seed: int, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.students, self.data, self.teacher, self.schedule, self.seed = (
            students,
            data,
            teacher,
            schedule,
            seed,
        )
        self.device = data.pixels.device
        self.mean, self.std = mean.view(1, -1, 1, 1), std.view(1, -1, 1, 1)
        self.rate = torch.zeros((), device=self.device)
        self.progress = torch.zeros((), device=self.device)
        self.rows = torch.zeros(schedule.batch_size, dtype=torch.long, device=self.device)
        self.losses = torch.zeros(len(students), device=self.device)
        context = self._context(classes, teacher_facts)
        self.methods = [_method(s)(context, **s.options).to(self.device) for s in students]
        self.forwards: list[Callable[[Tensor], ModelOutput]] = [s.network.outputs for s in students]
        self.teach = teacher.outputs if teacher is not None else None
        if compiled:
            self.forwards = [torch.compile(s.network.outputs, dynamic=False) for s in students]
            self.teach = torch.compile(teacher.outputs, dynamic=False) if teacher is not None else None
        self.parameters = [
            p
            for s, m in zip(students, self.methods, strict=True)
            for p in (*s.network.parameters(), *m.parameters())
        ]
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.num_classes = len(classes)
        self.augment = Shift()
        self.graph: torch.cuda.CUDAGraph | None = None

    def _context(self, classes: tuple[str, ...], facts: dict) -> Context:
        sample = self._normalised(self.data.pixels[:2].float() / 255)
        with torch.no_grad():
            modes = [s.network.training for s in self.students]
            student = self.students[0].network.eval().outputs(sample)
            for s, mode in zip(self.students, modes, strict=True):
                s.network.train(mode)
            taught = self.teacher.outputs(sample) if self.teacher is not None else None
        return Context(
            student_classes=classes, student_shape=student, teacher_shape=taught, num_train=len(self.data.labels),
            seed=self.seed, train_labels=self.data.labels.cpu(), **facts,
        )  # fmt: skip

    def _normalised(self, images: Tensor) -> Tensor:
        images = (images - self.mean) / self.std
        return images.contiguous(memory_format=torch.channels_last)

    def _step(self) -> None:
        pixels = self.data.pixels[self.rows]
        labels = self.data.labels[self.rows]
        view = self._normalised(
            self.augment(pixels, torch.rand(len(pixels), 3, device=self.device)).float() / 255
        )
        targets = nn.functional.one_hot(labels, self.num_classes).float()
        weights = torch.ones_like(labels, dtype=torch.float32)
        precision = torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
        taught = None
        if self.teach is not None:
            with torch.no_grad(), precision:
                taught = self.teach(view)
        main = torch.cuda.current_stream() if self.device.type == "cuda" else None
        for place, (forward, method) in enumerate(zip(self.forwards, self.methods, strict=True)):
            if main is not None:
                self.streams[place].wait_stream(main)
            with torch.cuda.stream(self.streams[place]) if main is not None else torch.enable_grad():
                with precision:
                    out = forward(view)
                step = Step(view, labels, targets, weights, self.rows, out, taught, self.progress)
                loss = torch.stack(list(method(step).values())).sum()
                loss.backward()
                self.losses[place] = loss.detach()
        if main is not None:
            for stream in self.streams:
                main.wait_stream(stream)
        self._descend()

    @torch.no_grad()
    def _descend(self) -> None:
        grads = [p.grad for p in self.parameters]
        torch._foreach_add_(grads, self.parameters, alpha=self.schedule.weight_decay)
        torch._foreach_mul_(self.velocity, self.schedule.momentum)
        torch._foreach_add_(self.velocity, grads)
        torch._foreach_sub_(self.parameters, torch._foreach_mul(self.velocity, self.rate))
        torch._foreach_zero_(grads)

    def _capture(self) -> None:
        """Warm up, put everything back as it was, then record one step."""
        self.streams = [torch.cuda.Stream() for _ in self.students]
        kept = [t.clone() for t in self._state()]
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        with torch.no_grad():
            torch._foreach_copy_(self._state(), kept)
            torch._foreach_zero_([p.grad for p in self.parameters])

    def _state(self) -> list[Tensor]:
        buffers = [
            b
            for s, m in zip(self.students, self.methods, strict=True)
            for b in (*s.network.buffers(), *m.buffers())
        ]
        floats = [b for b in buffers if b.is_floating_point()]
        return [p.data for p in self.parameters] + self.velocity + floats

    def train(self, on_epoch: Callable[[int, float], None] | None = None) -> float:
        """Run all epochs; returns the seconds they took without capture."""
        for s in self.students:
            s.network.train()
        if self.device.type == "cuda":
            self._capture()
        else:
            for p in self.parameters:
                p.grad = torch.zeros_like(p)
        torch.manual_seed(self.seed)
        started = time.perf_counter()
        steps = len(self.data.labels) // self.schedule.batch_size
        for epoch in range(self.schedule.epochs):
            self.rate.fill_(self.schedule.rate_at(epoch))
            self.progress.fill_(epoch / self.schedule.epochs)
            order = torch.randperm(len(self.data.labels), device=self.device)
            for rows in order[: steps * self.schedule.batch_size].view(steps, -1):
                self.rows.copy_(rows)
                self._step() if self.graph is None else self.graph.replay()
            if on_epoch is not None:
                on_epoch(epoch, time.perf_counter() - started)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        for student, loss in zip(self.students, self.losses.tolist(), strict=True):
            student.final_loss = loss
        return time.perf_counter() - started

    @torch.no_grad()
    def evaluate(self, data: Images, batch_size: int = 1000) -> None:
        """Write each student's accuracy on the given images."""
        hits = torch.zeros(len(self.students), device=self.device)
        for start in range(0, len(data.labels), batch_size):
            view = self._normalised(data.pixels[start : start + batch_size].float() / 255)
            labels = data.labels[start : start + batch_size]
            for place, student in enumerate(self.students):
                student.network.eval()
                with torch.autocast(self.device.type, torch.bfloat16):
                    hits[place] += (student.network.outputs(view).logits.argmax(1) == labels).sum()
        for student, hit in zip(self.students, hits.tolist(), strict=True):
            student.accuracy = hit / len(data.labels)
