"""Tasks: labelled data with class names, from folders, arrays, CIFAR files or rendered characters."""

from preceptor.data.loader import Batch, Loader
from preceptor.data.protocol import double_sliding_windows, overlap, parse_window, sliding_windows
from preceptor.data.split import Split
from preceptor.data.task import Task

__all__ = [
    "Batch",
    "Loader",
    "Split",
    "Task",
    "double_sliding_windows",
    "overlap",
    "parse_window",
    "sliding_windows",
]
