"""Tab. 5: standard distillation on CUB from a MobileNet-1.0."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book
from experiments.items import kd_tables
from experiments.jobs import Job, Scale

NAME, TITLE = "tab05", "Tab. 5: standard distillation, CUB, teacher MobileNet-1.0"
STUDENTS = ("mobilenet-1.0", "mobilenet-0.75", "mobilenet-0.5", "mobilenet-0.25")
PAPER = {
    "none": (75.36, 74.87, 72.41, 69.72), "ban": (76.87, None, None, None), "kd": (77.61, 76.02, 74.24, 72.03),
    "fitnet": (75.10, 75.03, 72.17, 69.09), "vid": (77.03, 76.91, 75.62, 72.23), "rkd": (77.72, 76.80, 74.99, 72.55),
    "sftn": (77.64, 77.90, 77.34, 73.55), "afd": (78.67, 78.11, 77.42, 73.60), "seed": (77.93, 78.14, 77.50, 73.23),
    "sskd": (78.34, 78.22, 77.10, 72.18), "wcord": (79.02, 78.20, 77.83, 74.22), "mgd": (78.55, 77.69, 76.68, 73.40),
    "refilled": (79.33, 78.52, 76.90, 74.04), "sinkhorn": (79.87, 78.92, 78.43, 75.01),
}  # fmt: skip


def jobs(scale: Scale) -> list[Job]:
    """All 200 classes, at 112 px and without weights from ImageNet."""
    return kd_tables.jobs(scale, NAME, "cub200-all", "mobilenet-1.0", STUDENTS[::-1], 70)


def section(book: Book, folder: Path) -> str:
    """The table."""
    return kd_tables.section(book, NAME, jobs, STUDENTS, PAPER, "The paper's teacher has 75.36.")
