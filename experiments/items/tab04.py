"""Tab. 4: standard distillation on CIFAR-100 from a WideResNet-(40,2)."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book
from experiments.items import kd_tables
from experiments.jobs import Job, Scale

NAME, TITLE = "tab04", "Tab. 4: standard distillation, CIFAR-100, teacher WRN-(40,2)"
STUDENTS = ("wrn-40-2", "wrn-16-2", "wrn-40-1", "wrn-16-1")
PAPER = {
    "none": (74.44, 70.15, 68.97, 65.44), "ban": (75.41, None, None, None), "kd": (75.47, 71.87, 70.46, 66.54),
    "fitnet": (74.29, 70.89, 68.66, 65.38), "vid": (75.25, 73.31, 71.51, 66.32), "rkd": (76.62, 72.56, 72.18, 65.22),
    "sftn": (76.93, 75.23, 72.04, 67.41), "afd": (77.42, 75.58, 72.50, 67.37), "seed": (76.28, 73.40, 71.83, 67.75),
    "sskd": (75.42, 74.03, 72.71, 67.30), "wcord": (77.36, 74.29, 72.78, 67.35), "mgd": (76.40, 74.25, 72.17, 66.80),
    "refilled": (77.49, 74.01, 72.72, 67.56), "sinkhorn": (78.03, 75.83, 73.94, 68.01),
}  # fmt: skip


def jobs(scale: Scale) -> list[Job]:
    """All 100 classes."""
    return kd_tables.jobs(scale, NAME, "cifar100-all", "wrn-40-2", STUDENTS[::-1], 50)


def section(book: Book, folder: Path) -> str:
    """The table."""
    return kd_tables.section(book, NAME, jobs, STUDENTS, PAPER, "The paper's teacher has 74.44.")
