"""The README's figures are those of the tables that are written from the results."""

from __future__ import annotations

import re
from statistics import fmean

import pytest

from tests.docs.kept import EVERY, MIXED_EARLY, alone_by_mixing, best_alone, gains, of_birds
from tests.docs.kept import EVERY_FEW as FEW
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PLACES = (0, 2, 5)  # all, 60 % and none of the classes shared, among the columns from 100 to 0 %


def rows(page: str, marker: str) -> dict[str, list[str]]:
    """First cell of a written table -> its other cells."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text[text.index(f"<!-- {marker}:begin -->") : text.index(f"<!-- {marker}:end -->")]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {first.strip(): [cell.strip() for cell in others] for first, *others in cells}


def told(beginning: str) -> list[str]:
    (line,) = (line for line in README.splitlines() if line.startswith(f"| {beginning}"))
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def reached(variant: str, recipe: str | None) -> list[float]:
    """Mean accuracies with 25 images a class, in percent."""
    found = [
        row for row in FEW if (row["variant"], row.get("recipe"), row["per_class"]) == (variant, recipe, 25)
    ]
    return [
        100 * fmean(row["accuracy"] for row in found if row["overlap"] == share) for share in (1.0, 0.6, 0.0)
    ]


MIXED = "500 images a class, mixed in the first half"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("with `sinkhorn` (", "25 images a class, mixed as by `run`, `sinkhorn`"),
        ("with `sinkhorn+probe`", "25 images a class, mixed as by `run`, `sinkhorn+probe`"),
        ("with `probe-kd`", "25 images a class, mixed as by `run`, `probe-kd`"),
        ("**500 images a class**", "500 images a class, `sinkhorn`"),
        ("student alone, images mixed", f"{MIXED}: the student alone, against not mixed"),
        ("with `sinkhorn` on top", f"{MIXED}: `sinkhorn`, against alone and mixed"),
        ("seen by the teacher, with `sinkhorn`", "250 images a class, seen by the teacher, `sinkhorn`"),
        ("**250 images a class**, new", "250 images a class, not seen by the teacher, `sinkhorn`"),
        ("new to the teacher, with", "250 images a class, not seen by the teacher, `sinkhorn+probe`"),
    ],
)
def test_gains(mine: str, theirs: str) -> None:
    table = rows("choosing.md", "gains")
    assert told(mine) == [table[theirs][place].split(" ± ")[0] for place in PLACES]


def test_the_mean_gain_with_all_images() -> None:
    gains = [
        float(cell.split(" ± ")[0]) for cell in rows("choosing.md", "gains")["500 images a class, `sinkhorn`"]
    ]
    assert len(gains) == 6
    assert (
        f"In the paper's protocol it gained {fmean(gains):.1f} points on average over six overlaps"
        in " ".join(README.split())
    )


def test_what_mixing_and_a_teacher_gave_together() -> None:
    alone, more = (
        fmean(fmean(some(overlap)) for overlap in EVERY)
        for some in (alone_by_mixing, lambda overlap: gains("sinkhorn", None, overlap, rows=MIXED_EARLY))
    )
    told = f"that gave {alone:.1f} without a teacher, and both together {alone + more:.1f}."
    assert told in " ".join(README.split())


def test_the_demonstration() -> None:
    found = rows("when-it-helps.md", "demo")
    alone, letters = found["none"][1], found["letters"][1]
    assert f"({alone} % alone, {letters} % from the letters by `sinkhorn+probe`)" in README


def test_photographs() -> None:
    same, _, other = of_birds("sinkhorn+probe")
    told = f"gained {same} points with the same classes and {other} with none, over a student that was trained in"
    assert told in " ".join(README.split())


def test_accuracies() -> None:
    alone = [100 * fmean(best_alone(25, share).values()) for share in (1.0, 0.6, 0.0)]
    assert told("**25 images a class**") == [f"{value:.1f} %" for value in alone]
    assert told("the teacher itself") == [f"{value:.1f} %" for value in reached("finetune", None)]
    first, second, third = (f"{value:.0f}" for value in reached("none", None))
    assert f"(an ordinary recipe takes the student alone to {first}, {second} and {third} %)" in README


def test_what_the_first_places_lost() -> None:
    table = rows("metrics.md", "assessment")
    text = " ".join(README.split())
    assert f"its first place lost {float(table['`sinkhorn`'][2]):.1f} points to the best teacher" in text
    assert f"`bridge` {table['`bridge`'][2]} (" in text
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    (blind,) = re.findall(r"a teacher drawn blindly has ([\d.]+\d) and", page)
    assert f"a blind draw {blind}," in text
