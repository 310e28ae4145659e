"""Many trainings side by side on one GPU, in one process.

Small students leave a GPU idle: their steps are hundreds of launches of tiny kernels. A pack trains all students that
share the data and its order at once: the batch is drawn and augmented once, each teacher sees it once, students of one
architecture are merged into one wide network, each computes its loss on its own stream, and the whole step is one
CUDA graph. Students of a pack see the same batches, which makes their differences paired comparisons; the random
numbers come from a generator of the pack's own, so that students of different packs with one seed see the same
batches too. On the CPU the same code runs without the graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from experiments.choirs import Choir, pass_of
from experiments.images import Images
from experiments.merged import Merged, can_merge
from experiments.passes import clean_outputs, normalised
from experiments.pupils import Lesson, LessonKey, Scene, Student, context_of, lesson_key, looks_at_maps
from preceptor.core import ModelOutput
from preceptor.distill.inputs import mix_up, mixup_share
from preceptor.distill.losses import Step


class Pack:
    """Students that see the same batches.

    Args:
        students: Their networks are trained in place.
        scene: Data, classes, schedule, seed.
        graphed: Record the step as a CUDA graph. A pack whose methods talk to the host cannot be.
        merged: Make one wide network of those of one architecture.
    """

    def __init__(
        self, students: Sequence[Student], scene: Scene, graphed: bool = True, merged: bool = True
    ) -> None:
        self.students, self.scene, self.data, self.schedule = students, scene, scene.data, scene.schedule
        self.device = scene.data.pixels.device
        self.graphed = graphed and self.device.type == "cuda"
        self.batch = min(self.schedule.batch_size, len(self.data))
        self.rate = torch.zeros((), device=self.device)
        self.progress = torch.zeros((), device=self.device)
        self.rows = torch.zeros(self.batch, dtype=torch.long, device=self.device)
        self.draws = torch.zeros(self.batch, self.data.draws, device=self.device)
        self.share = torch.ones((), device=self.device)  # of the own image, where images are mixed up
        self.losses = torch.zeros(len(students), device=self.device)
        self.methods = [s.method(context_of(scene, s), **s.options).to(self.device) for s in students]
        # In the order in which students name them; one pass serves all students of a teacher.
        self.tutors = list(dict.fromkeys(s.tutor for s in students if s.tutor is not None))
        learners = {
            tutor: [m for m, s in zip(self.methods, students, strict=True) if s.tutor is tutor]
            for tutor in self.tutors
        }
        self.teach = {tutor: pass_of(tutor.network, some, scene.compiled) for tutor, some in learners.items()}
        self.choirs = self._choirs(merged)
        owners = [(c.network, students[c.places[0]].rate_scale) for c in self.choirs]
        owners += [(m, s.rate_scale) for m, s in zip(self.methods, students, strict=True)]
        pairs = [(p, scale) for owner, scale in owners for p in owner.parameters() if p.requires_grad]
        self.parameters = [p for p, _ in pairs]
        # Positions among the parameters by the scale of their learning rate.
        self.rates = {scale: [k for k, (_, own) in enumerate(pairs) if own == scale] for _, scale in pairs}
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.streams: list[torch.cuda.Stream] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.chance = torch.Generator(self.device).manual_seed(scene.seed)
        self.epoch, self.seconds = 0, 0.0  # that are done, and what they took without capture

    def _choirs(self, merged: bool) -> list[Choir]:
        """Students of one architecture that see the same images and learn at the same rate, together.

        Those whose losses look at maps are apart: the others would have to carry gradients of zero through theirs.
        """
        found: dict[tuple, list[int]] = {}
        for place, (student, method) in enumerate(zip(self.students, self.methods, strict=True)):
            shapes = tuple((n, tuple(t.shape)) for n, t in student.network.state_dict().items())
            alone = None if merged and can_merge(student.network) else place
            key = (shapes, lesson_key(student, method)[1], looks_at_maps(method), student.rate_scale, alone)
            found.setdefault(key, []).append(place)
        sample = normalised(self.data.pixels[:2], self.scene.mean, self.scene.std)
        choirs = []
        for places in found.values():
            networks = [self.students[place].network for place in places]
            network = networks[0] if len(networks) == 1 else Merged(networks, sample).to(self.device)
            methods = [self.methods[place] for place in places]
            choirs.append(Choir(places, network, pass_of(network, methods, self.scene.compiled)))
        return choirs

    @property
    def bfloat16(self) -> bool:
        """Whether passes in training are in that precision."""
        return self.device.type == "cuda" or self.scene.bfloat16

    def _precision(self) -> AbstractContextManager:
        if not self.bfloat16:
            return nullcontext()
        # Without its cache of casted weights: a graph would keep the copies of the step that was recorded.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _view(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The batch as networks take it, and its labels."""
        view, labels = self.data.view(self.rows, self.draws), self._labels()
        if self.schedule.mixup:
            view, labels["targets"] = mix_up(view.float(), labels["targets"], self.share)
        return normalised(view, self.scene.mean, self.scene.std), labels

    def _lessons(self, view: Tensor) -> dict[LessonKey, Lesson]:
        """The batch and what each teacher says about it; once more for methods that add views to it."""
        lessons: dict[LessonKey, Lesson] = {}
        for student, method in zip(self.students, self.methods, strict=True):
            key = lesson_key(student, method)
            if key in lessons:
                continue
            seen = view if key[1] is None else method.expand(view)
            taught = None
            if student.tutor is not None:
                with torch.no_grad(), self._precision():
                    taught = self.teach[student.tutor](seen)
            lessons[key] = (seen, taught)
        return lessons

    def _labels(self) -> dict[str, Tensor]:
        labels = self.data.labels[self.rows]
        return {
            "labels": labels,
            "targets": nn.functional.one_hot(labels, len(self.scene.classes)).float(),
            "weights": torch.ones_like(labels, dtype=torch.float32),
            "indices": self.rows,
        }

    def _study(self, place: int, out: ModelOutput, lesson: Lesson, labels: dict[str, Tensor]) -> None:
        """The loss of one student and its gradients at the student's outputs."""
        seen, taught = lesson
        step = Step(images=seen, student=out, teacher=taught, progress=self.progress, **labels)
        loss = torch.stack(list(self.methods[place](step).values())).sum()
        loss.backward()
        self.losses[place] = loss.detach()

    def _step(self, study: Callable[..., None] | None = None) -> None:
        study = study or self._study
        for p in self.parameters:
            p.grad = None  # so that backward passes write gradients and need not add them
        view, labels = self._view()
        lessons = self._lessons(view)
        main = torch.cuda.current_stream() if self.streams else None
        for choir in self.choirs:
            found = [lessons[lesson_key(self.students[k], self.methods[k])] for k in choir.places]
            with self._precision():
                out = choir.forward(found[0][0])
            parts = choir.parts(out)
            for place, part, lesson in zip(choir.places, parts, found, strict=True):
                if main is None:
                    study(place, part, lesson, labels)
                    continue
                self.streams[place].wait_stream(main)
                with torch.cuda.stream(self.streams[place]):
                    study(place, part, lesson, labels)
            if main is not None:
                for place in choir.places:
                    main.wait_stream(self.streams[place])
            choir.backward(out, parts)
        self._descend()

    @torch.no_grad()
    def _descend(self) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        torch._foreach_add_(grads, self.parameters, alpha=self.schedule.weight_decay)
        torch._foreach_mul_(self.velocity, self.schedule.momentum)
        torch._foreach_add_(self.velocity, grads)
        for scale, places in self.rates.items():
            moves = torch._foreach_mul([self.velocity[k] for k in places], self.rate * scale)
            torch._foreach_sub_([self.parameters[k] for k in places], moves)

    def _capture(self) -> None:
        """Warm up, put everything back as it was, then record one step."""
        kept = [t.clone() for t in self._changing()]
        self.streams = [torch.cuda.Stream() for _ in self.students]
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
            for tensor, before in zip(self._changing(), kept, strict=True):
                tensor.copy_(before)

    def _changing(self) -> list[Tensor]:
        """Everything a step changes."""
        owners = [*(choir.network for choir in self.choirs), *self.methods]
        buffers = [buffer for owner in owners for buffer in owner.buffers()]
        return [p.data for p in self.parameters] + self.velocity + buffers

    def waits_for_host(self) -> list[int]:
        """Positions of students whose loss cannot be recorded, found by a step whose losses must not synchronise."""
        kept = [t.clone() for t in self._changing()]
        found = []

        def strict(place: int, *lesson: Any) -> None:
            torch.cuda.set_sync_debug_mode("error")
            try:
                self._study(place, *lesson)
            except RuntimeError:
                found.append(place)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        self._step()  # compiles, and lets libraries choose kernels, which may synchronise
        self._step(strict)
        with torch.no_grad():
            for tensor, before in zip(self._changing(), kept, strict=True):
                tensor.copy_(before)
        return found

    def state(self) -> dict[str, Any]:
        """All that a pack of the same students needs to go on from here."""
        return {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "chance": self.chance.get_state(),
            "tensors": [tensor.cpu() for tensor in self._changing()],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.chance.set_state(state["chance"])
        with torch.no_grad():
            for tensor, before in zip(self._changing(), state["tensors"], strict=True):
                tensor.copy_(before)

    def train(self, go_on: Callable[[], bool] | None = None, begun: dict[str, Any] | None = None) -> bool:
        """Run the epochs that are left; returns whether all are done.

        Args:
            go_on: Asked after each epoch but the last.
            begun: The state that an earlier pack of these students was left in.
        """
        for choir in self.choirs:
            choir.network.train()
        if self.graphed:
            self._capture()
        if begun is not None:
            self._restore(begun)
        while self.epoch < self.schedule.epochs:
            started = time.perf_counter()
            self._epoch(self.epoch)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.seconds += time.perf_counter() - started
            self.epoch += 1
            if go_on is not None and self.epoch < self.schedule.epochs and not go_on():
                return False
        for student, loss in zip(self.students, self.losses.tolist(), strict=True):
            student.final_loss = loss
        for choir in self.choirs:
            if isinstance(choir.network, Merged):
                choir.network.write_back([self.students[place].network for place in choir.places])
        return True

    def _epoch(self, epoch: int) -> None:
        self.rate.fill_(self.schedule.rate_at(epoch))
        self.progress.fill_(epoch / self.schedule.epochs)
        steps = len(self.data) // self.batch
        order = torch.randperm(len(self.data), device=self.device, generator=self.chance)
        draws = torch.rand(steps, *self.draws.shape, device=self.device, generator=self.chance)
        for number, rows in enumerate(order[: steps * self.batch].view(steps, -1)):
            self.rows.copy_(rows)
            self.draws.copy_(draws[number])
            if self.schedule.mixup:
                share = mixup_share(self.schedule.mixup, self.scene.seed, epoch * steps + number)
                self.share.fill_(share if self.schedule.mixes_at(epoch) else 1.0)
            self._step() if self.graph is None else self.graph.replay()
            if epoch == number == 0 or number == steps - 1:
                for method in self.methods:
                    if (between := getattr(method, "between_epochs", None)) is not None:
                        between()

    @torch.no_grad()
    def evaluate(self, data: Images, batch_size: int = 1000) -> None:
        """Write each student's accuracy on the given images; a student that diverged has none."""
        for student in self.students:
            logits = clean_outputs(student.network, data, self.scene.mean, self.scene.std, batch_size, False)[
                1
            ]
            student.accuracy = float((logits.argmax(1) == data.labels).float().mean())
            if not bool(logits.isfinite().all()) or not math.isfinite(student.final_loss):
                student.accuracy = float("nan")
