"""Run by the tests in a process of its own: children that add teachers or extract features, killed or racing.

It forks after its imports, so that a trial takes milliseconds; the tests' own process has threads and must
not fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from preceptor.core import ModelOutput
from preceptor.data import Task
from preceptor.zoo import Teacher, Zoo, extract
from preceptor.zoo.adding import parse_source, prepare

torch.set_num_threads(1)


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def kill(url: str, run: str, trials: int, seed: int) -> dict[str, object]:
    """Kill each add at a random moment of its life; half the trials aim at the storing alone."""
    zoo, chance = Zoo(url), random.Random(seed)
    zoo.add(f"run:{run}", name="first")  # pays for imports that the children then share
    began = time.perf_counter()
    zoo.add(f"run:{run}", name="whole")
    whole = time.perf_counter() - began
    options = {"centers": None, "centers_from": None, "accuracy": None, "licence": None, "device": "cpu"}
    request = parse_source(f"run:{run}")
    finished, killed = ["first", "whole"], 0
    patience = [whole, 3 * whole]  # follows the machine, so that about half of the kills come in time
    for trial in range(trials):
        name, kind = f"t{trial}", trial % 2
        if kind:
            child = fork(lambda name=name: zoo.add(f"run:{run}", name=name))
        else:
            prepared = prepare(request, name=name, **options)
            child = fork(lambda prepared=prepared: zoo.commit(prepared.card, prepared.files))
        time.sleep(chance.uniform(0, patience[kind]))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            killed += 1
            patience[kind] *= 1.2
        elif os.WEXITSTATUS(status) == 0:
            finished.append(name)
            patience[kind] *= 0.8
        else:
            raise SystemExit(f"an add failed with {status}")
    return {"finished": finished, "killed": killed, "seconds": whole}


def race(url: str, run: str, processes: int, each: int) -> dict[str, object]:
    """Several processes add teachers of their own and fight over one name."""

    def work(number: int) -> None:
        zoo = Zoo(url)
        for index in range(each):
            zoo.add(f"run:{run}", name=f"p{number}-{index}")
            zoo.listing()
        try:
            zoo.add(f"run:{run}", name="same")
        except ValueError:
            os._exit(7)

    children = [fork(lambda number=number: work(number)) for number in range(processes)]
    statuses = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]
    return {"statuses": sorted(statuses)}


def extract_at_once(url: str, folder: str, processes: int, batch: int) -> dict[str, object]:
    """Several processes want the same features; each notes how many samples it computed and what it got."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (20, 3, 16, 16), dtype=np.uint8)
    labels = np.arange(20) % 3
    task = Task.from_arrays(images, labels, images, labels, classes=("ant", "bee", "cat"), name="made")
    teacher = Zoo(url).load("a")
    computed: list[int] = []
    original = Teacher.outputs

    def slow(self: Teacher, inputs: torch.Tensor, maps: bool = True) -> ModelOutput:
        computed.append(len(inputs) if inputs.any() else 0)  # zeros: `lay_out` tries the network
        time.sleep(0.2)
        return original(self, inputs, maps)

    Teacher.outputs = slow  # type: ignore[method-assign]

    def work(number: int) -> None:
        came = extract(teacher, task.train, batch_size=batch)
        text = json.dumps([sum(computed), float(came.features.sum())])
        Path(folder, f"{number}.json").write_text(text)

    children = [fork(lambda number=number: work(number)) for number in range(processes)]
    statuses = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]
    outcomes = [json.loads(Path(folder, f"{number}.json").read_text()) for number in range(processes)]
    return {"statuses": statuses, "outcomes": outcomes}


if __name__ == "__main__":
    task, url, run, first, second = sys.argv[1:]
    outcome = {"kill": kill, "race": race, "extract": extract_at_once}[task](
        url, run, int(first), int(second)
    )
    print(json.dumps(outcome))
