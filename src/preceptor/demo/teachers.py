"""The demonstration's zoo: small networks that read letters, Greek or some digits, and two that are no good."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from preceptor.data import Task
from preceptor.demo.settings import TEACHERS, Settings
from preceptor.distill.train import train
from preceptor.zoo import Card, Zoo

Notify = Callable[[str], None]


def build_zoo(folder: Path, settings: Settings, notify: Notify) -> Zoo:
    """The zoo in ``folder/zoo``: teachers that are there and sound stay, the others are trained."""
    zoo = Zoo(folder / "zoo")
    for name in TEACHERS:
        if name in zoo.names():
            problems = zoo.verify(name)
            if not problems:
                notify(f"  {_described(zoo.card(name))}; it was there already")
                continue
            notify(f"  {name} is damaged ({problems[0]}) and is trained again")
            _forget(folder, zoo, name)
        notify(f"  training {name} …")
        notify(f"  {_described(_teacher(folder, zoo, name, settings))}")
    return zoo


def teacher_task(name: str, settings: Settings) -> Task:
    """What a teacher learns."""
    source = settings.teacher_source(name)
    if name == "digits-0-4":
        return Task(source, classes="0,1,2,3,4")
    return _mislabelled(Task(source)) if name == "mislabelled" else Task(source)


def _teacher(folder: Path, zoo: Zoo, name: str, settings: Settings) -> Card:
    task, run = teacher_task(name, settings), folder / "teachers" / name
    # A learning rate of 0 leaves the weights as they were drawn; only the batch statistics are real.
    how: dict[str, Any] = (
        {"epochs": 1, "lr": 0.0} if name == "untrained" else {"epochs": settings.teacher_epochs, "lr": 0.1}
    )
    train(
        task, student=settings.arch, recipe="quick", out=run, seed=len(name), resume=True, device="cpu",
        evaluate_every=how["epochs"], **how,
    )  # fmt: skip
    return zoo.add(f"run:{run}", name=name)


def _mislabelled(task: Task) -> Task:
    """The same images with their training labels dealt out anew: nothing about characters to be learnt."""
    shuffled = np.random.default_rng(0).permutation(task.train.labels)
    images, tests = (np.asarray(split.load(np.arange(len(split)))) for split in (task.train, task.test))
    return Task.from_arrays(
        images, shuffled, tests, task.test.labels, task.classes, f"{task.name} (mislabelled)"
    )


def _forget(folder: Path, zoo: Zoo, name: str) -> None:
    """Throw out a teacher and the students that learnt from it."""
    zoo.remove(name)
    for leftover in (folder / "teachers" / name, folder / "runs" / f"from-{name}"):
        shutil.rmtree(leftover, ignore_errors=True)


def _described(card: Card) -> str:
    known = "" if card.accuracy is None else f", reads {card.accuracy:.0%} of them in fonts it never saw"
    return f"{card.name}: {len(card.classes)} classes ({_span(card.classes)}){known}"


def _span(classes: tuple[str, ...]) -> str:
    return f"{classes[0]} … {classes[-1]}"
