"""Run by test_resume: train, be killed again and again, resume, and compare with an unbroken run.

Children are forked from one process, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from preceptor.distill import loop, schedules
from preceptor.distill.schedules import distill
from preceptor.models import build
from tests.distill.toys import toy_task

METHOD, SEED = sys.argv[1], int(sys.argv[2])
OPTIONS = json.loads(sys.argv[3])
HOME = Path(sys.argv[4])


def run(out: Path) -> None:
    teacher = build("cnn-4", 4, (1, 8, 8), seed=5)
    classes = "abcd" if METHOD in ("kd", "sskd") else "wxyz"
    student = build("cnn-2", 4, (1, 8, 8), seed=1)
    student.classifier = torch.nn.Linear(8, 4)
    torch.manual_seed(3)
    torch.nn.init.normal_(student.classifier.weight, std=0.1)
    torch.nn.init.zeros_(student.classifier.bias)
    student.blocks[2] = torch.nn.Sequential(student.blocks[2], torch.nn.Dropout(0.2))
    distill(
        student, toy_task(train=70), teacher, METHOD, out, teacher_classes=list(classes), epochs=3,
        batch_size=16, augment="pad-crop-flip", checkpoint_every=2, resume=True, device="cpu", **OPTIONS,
    )  # fmt: skip


def child(action: Callable[[], None]) -> int:
    """Run `action` in a fork; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(out: Path, steps: int) -> Callable[[], None]:
    """Killed when it has done `steps` steps of its own."""

    def action() -> None:
        original, done = loop.Loop._train_on, [0]

        def train_on(self: loop.Loop, *arguments: object) -> None:
            if done[0] == steps:
                os.kill(os.getpid(), signal.SIGKILL)
            done[0] += 1
            original(self, *arguments)

        loop.Loop._train_on = train_on
        run(out)

    return action


def killed_at_write(out: Path, count: int) -> Callable[[], None]:
    def action() -> None:
        original, calls = os.fsync, [0]

        def fsync(descriptor: int) -> None:
            calls[0] += 1
            if calls[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            original(descriptor)

        os.fsync = fsync
        run(out)

    return action


def main() -> None:
    torch.set_num_threads(1)
    assert schedules.distill is distill
    chance = random.Random(SEED)
    unbroken, broken = HOME / "unbroken", HOME / "broken"
    assert child(lambda: run(unbroken)) == 0
    steps = [killed_after(broken, chance.randint(0, 4)) for _ in range(3)]
    writes = [killed_at_write(broken, chance.randint(1, 4)) for _ in range(2)]
    kills = [steps[0], writes[0], steps[1], writes[1], steps[2]]
    ends = [child(kill) for kill in kills]
    assert child(lambda: run(broken)) == 0
    one, two = (load_file(folder / "model.safetensors") for folder in (unbroken, broken))
    differing = [name for name in one if not torch.equal(one[name], two[name])]
    logs = [
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in open(folder / "log.jsonl")]
        for folder in (unbroken, broken)
    ]
    leftovers = [str(path) for path in broken.rglob("*.part")]
    print(json.dumps({"ends": ends, "differing": differing, "logs": logs[0] == logs[1], "left": leftovers}))


if __name__ == "__main__":
    main()
