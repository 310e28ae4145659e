"""Benchmarks on rendered characters that repeat everything on several draws, each in a process of its own."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import mean, stdev
from typing import Any, TypeVar

import torch

from preceptor import Task
from preceptor.demo import Settings
from preceptor.distill.recipe import RECIPES
from preceptor.distill.result import Result
from preceptor.distill.train import train

Cell, Found = TypeVar("Cell"), TypeVar("Found")
# 180 epochs of any number of images, mixed to the very end: what some tables have is of this training.
TO_THE_END = {"recipe": "patient", "min_steps": 0, "mixup_until": 1.0}
TEACHERS = {"letters": 100, "digits": 200}  # what the teachers know, and of how many images a class


def arguments(doc: str) -> argparse.ArgumentParser:
    """What all of them take."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one draw, two epochs; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    parser.add_argument("--workers", type=int, default=2)
    return parser


def in_processes(
    work: Callable[[Cell, bool], Found], cells: Sequence[Cell], args: argparse.Namespace
) -> Iterator[tuple[Cell, Found]]:
    """Each cell with what came of it, in their order; one thread a process, this one included."""
    torch.set_num_threads(1)
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        yield from zip(cells, pool.map(partial(_alone, work, args.quick), cells), strict=True)


def _alone(work: Callable[[Cell, bool], Found], quick: bool, cell: Cell) -> Found:
    torch.set_num_threads(1)
    if quick:
        RECIPES.update(
            {name: replace(RECIPES[name], epochs=2, min_steps=0) for name in ("patient", "mixed", "small")}
        )
    return work(cell, quick)


def school(task: Task, arch: str, epochs: int, seed: int = 0, *, lr: float = 0.1, **options: Any) -> Result:
    """Train as the demonstration does."""
    return train(task, student=arch, recipe="quick", epochs=epochs, batch_size=32, lr=lr, seed=seed, device="cpu",
                 evaluate_every=epochs, progress=False, **options)  # fmt: skip


def teacher_of(name: str, quick: bool, **options: Any) -> Result:
    """A teacher of so many rendered characters."""
    settings = Settings()
    source = f"glyphs:{name}?per_class={TEACHERS[name]}&test_per_class=20&noise={settings.noise}&seed=1000"
    return school(Task(source), settings.arch, 1 if quick else settings.teacher_epochs, **options)


def percent(values: Sequence[float]) -> str:
    """Mean of accuracies ± their standard deviation."""
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{spread}"


def accuracy_table(
    head: Sequence[str], lines: Mapping[str, Sequence[Sequence[float]]], rows: Sequence[Mapping[str, Any]]
) -> str:
    """A line for each name, with what the draws reached in each column; `rows` are all that was kept."""
    shown = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    shown += [f"| {name} | " + " | ".join(map(percent, columns)) + " |" for name, columns in lines.items()]
    draws = len({row["draw"] for row in rows})
    return "\n".join(shown) + f"\n\nTest accuracy in percent, mean ± standard deviation of {draws} draws."
