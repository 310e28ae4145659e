"""Tab. 7: standard distillation on CUB from another family, a ResNet-50."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book
from experiments.items import kd_tables, tab05
from experiments.jobs import Job, Scale

NAME, TITLE = "tab07", "Tab. 7: distillation across families, CUB, teacher ResNet-50"
PAPER = {
    "none": (75.36, 74.87, 72.41, 69.72), "kd": (75.66, 74.50, 73.14, 70.88), "fitnet": (75.20, 74.28, 72.66, 70.52),
    "vid": (75.82, 74.14, 72.50, 70.92), "rkd": (75.29, 74.34, 72.87, 71.02), "sftn": (75.77, 74.69, 72.90, 71.45),
    "afd": (75.43, 74.20, 72.62, 71.08), "seed": (76.23, 75.12, 73.49, 71.88), "sskd": (76.34, 75.22, 73.80, 72.35),
    "wcord": (76.34, 74.88, 74.17, 73.53), "mgd": (75.73, 74.26, 74.50, 73.64),
    "refilled": (76.24, 75.50, 74.97, 73.87), "sinkhorn": (76.73, 76.04, 75.67, 74.35),
}  # fmt: skip


def jobs(scale: Scale) -> list[Job]:
    """All 200 classes, at 112 px and without weights from ImageNet."""
    return kd_tables.jobs(scale, NAME, "cub200-all", "resnet-50", tab05.STUDENTS[::-1], 72)


def section(book: Book, folder: Path) -> str:
    """The table."""
    return kd_tables.section(book, NAME, jobs, tab05.STUDENTS, PAPER, "The paper's teacher has 74.29.")
