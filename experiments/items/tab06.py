"""Tab. 6: standard distillation on CIFAR-100 from another family, a ResNet-50."""

from __future__ import annotations

from pathlib import Path

from experiments.book import Book
from experiments.items import kd_tables, tab04
from experiments.jobs import Job, Scale

NAME, TITLE = "tab06", "Tab. 6: distillation across families, CIFAR-100, teacher ResNet-50"
PAPER = {
    "none": (74.44, 70.15, 68.97, 65.44), "kd": (74.15, 71.23, 69.30, 66.12), "fitnet": (74.00, 70.22, 68.06, 64.72),
    "vid": (74.25, 72.83, 71.00, 65.76), "rkd": (74.82, 71.99, 71.35, 65.20), "sftn": (74.22, 72.13, 70.20, 64.37),
    "afd": (74.58, 71.99, 71.05, 64.74), "seed": (75.03, 72.25, 70.93, 66.44), "sskd": (74.86, 72.75, 71.96, 66.87),
    "wcord": (74.98, 72.54, 71.60, 66.43), "mgd": (74.50, 71.87, 71.22, 66.15),
    "refilled": (74.92, 72.57, 71.85, 66.90), "sinkhorn": (74.96, 74.23, 72.66, 67.89),
}  # fmt: skip


def jobs(scale: Scale) -> list[Job]:
    """All 100 classes."""
    return kd_tables.jobs(scale, NAME, "cifar100-all", "resnet-50", tab04.STUDENTS[::-1], 52)


def section(book: Book, folder: Path) -> str:
    """The table."""
    return kd_tables.section(book, NAME, jobs, tab04.STUDENTS, PAPER, "The paper's teacher has 72.17.")
