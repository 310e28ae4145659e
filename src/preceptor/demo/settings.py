"""What the demonstration trains, on what, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

METRICS = ("sinkhorn", "logme", "leep", "hscore")  # the first decides

# Teacher -> the glyphs it learns; `Settings.teacher_source` adds how many.
TEACHERS: Mapping[str, str] = {
    "letters": "letters",
    "upper-A-M": "upper-A-M",
    "lower-n-z": "lower-n-z",
    "greek": "greek",
    "digits-0-4": "digits",
    "mislabelled": "upper-N-Z",
    "untrained": "letters",
}
LETTER_TEACHERS = ("letters", "upper-A-M", "lower-n-z")

# Chosen on data and seeds that the demonstration does not use by default (data seed 11, student seeds 10 and
# 11): alone 32 %; weight 10 and temperature 3, as in the paper, 41 %; weight 30 49 %; weight 30 and
# temperature 2 53 %; weight 100 46 %. `center` takes the mean off both sides, as the metric does.
METHOD = "sinkhorn"
METHOD_OPTIONS: Mapping[str, Any] = {"weight": 30.0, "temperature": 2.0, "epsilon": 0.1, "center": True}


@dataclass(frozen=True)
class Settings:
    """Sizes of the demonstration; the defaults take about a minute on two cores."""

    arch: str = "cnn-8"  # of teachers and students
    teacher_per_class: int = 100
    teacher_epochs: int = 12
    per_class: int = 20  # training images of each digit
    test_per_class: int = 100  # in fonts that nobody has seen in training
    student_epochs: int = 40
    data_seed: int = 0
    first_seed: int = 0  # of the students; the others follow

    def teacher_source(self, name: str) -> str:
        """Where a teacher's data comes from."""
        return f"glyphs:{TEACHERS[name]}?per_class={self.teacher_per_class}&test_per_class=20&seed=1000"

    @property
    def target(self) -> str:
        """The student's task: digits from few samples."""
        return f"glyphs:digits?per_class={self.per_class}&test_per_class={self.test_per_class}&seed={self.data_seed}"
