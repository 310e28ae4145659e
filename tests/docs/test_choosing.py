"""What docs/choosing.md says about the search is what results/search.jsonl says."""

from __future__ import annotations

import json
import re
from statistics import mean

import pytest

from tests.docs.pages import ROOT

ROWS = [json.loads(line) for line in (ROOT / "results/search.jsonl").read_text(encoding="utf-8").splitlines()]
ROWS = [row for row in ROWS if row["split"] == "validation" and row["student"] == "wrn-16-1"]
PAGE = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")


def gains(variant: str, per_class: int | None) -> dict[float, float]:
    """Points over the plain student by overlap; the mean over seeds where there are several."""

    def accuracies(name: str) -> dict[float, float]:
        found = [row for row in ROWS if row["variant"] == name and row["per_class"] == per_class]
        overlaps = {row["overlap"] for row in found}
        return {g: 100 * mean(row["accuracy"] for row in found if row["overlap"] == g) for g in overlaps}

    alone = accuracies("none")
    return {overlap: value - alone[overlap] for overlap, value in accuracies(variant).items()}


@pytest.mark.parametrize(
    ("variant", "per_class", "stated"),
    [
        ("sinkhorn+probe", None, "2.2"), ("sinkhorn+probe", 25, "4.6"), ("probe-kd", 25, "4.3"),
        ("paper", None, "1.5"), ("paper", 25, "1.1"), ("weight 3", None, "1.5"), ("decay", None, "1.8"),
        ("centred", None, "0.9"), ("centred", 25, "2.3"), ("data centres, centred", None, "0.7"),
        ("divergence", None, "1.0"),
    ],
)  # fmt: skip
def test_stated_means_are_those_of_the_file(variant: str, per_class: int | None, stated: str) -> None:
    assert f"{mean(gains(variant, per_class).values()):.1f}" == stated
    prose = PAGE.partition("## The search")[0]
    assert re.search(rf"(?<![\d.]){re.escape(stated)}(?![\de])", prose), f"{stated} is not stated"
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {variant} |"))
    *_, many, few = (cell.strip() for cell in line.strip().strip("|").split("|"))
    assert (few if per_class else many).strip("+") == stated


@pytest.mark.parametrize("per_class", [None, 25])
def test_sinkhorn_with_a_probe_has_the_best_mean(per_class: int | None) -> None:
    variants = {row["variant"] for row in ROWS if row["per_class"] == per_class} - {"none"}
    assert max(variants, key=lambda name: mean(gains(name, per_class).values())) == "sinkhorn+probe"


def test_single_statements() -> None:
    assert f"{gains('probe-kd', 25)[0.0]:.1f}" == "8.2"
    assert all(gain < 0 for per_class in (None, 25) for gain in gains("rkd", per_class).values())
    decay, constant = gains("decay", None), gains("paper", None)
    assert [decay[g] > constant[g] for g in (0.4, 0.6, 1.0)] == [True, True, False]


def measured(method: str, column: int) -> tuple[float, float]:
    """Mean gain and its standard error in the table of docs/methods.md; column 0: other classes, 1: same."""
    table = (ROOT / "docs/methods.md").read_text(encoding="utf-8").partition("measured:begin")[2]
    line = next(line for line in table.splitlines() if line.startswith(f"| `{method}` |"))
    gain, error = re.search(r"\(([+-][\d.]+) ± ([\d.]+)\)", line.split("|")[2 + column]).groups()  # type: ignore[union-attr]
    return float(gain), float(error)


def test_statements_about_small_digits() -> None:
    gain, error = measured("sinkhorn", 0)
    assert gain < -2 * error
    assert all(
        -2 * error < gain < 0 for gain, error in (measured("probe-kd", 0), measured("sinkhorn+probe", 0))
    )
    assert measured("kd", 1)[0] > 0
    shared = {
        name: gains(name, None)[1.0] for name in {row["variant"] for row in ROWS} if 1.0 in gains(name, None)
    }
    assert max(shared, key=shared.__getitem__) == "sinkhorn+probe"


def test_the_search_is_what_the_page_calls_it() -> None:
    assert {row["data"] for row in ROWS} == {"cifar100"}
    assert {row["teacher"] for row in ROWS} == {"wrn-40-2"}
    assert {row["seed"] for row in ROWS} == {0}, "the page says one seed"
    assert {(row["per_class"], row["epochs"]) for row in ROWS} == {(None, 60), (25, 200)}
