"""What docs/choosing.md and docs/when-it-helps.md say is what the kept results say."""

from __future__ import annotations

import json
import re
from statistics import mean

import pytest

from tests.docs.pages import ROOT

ROWS = [json.loads(line) for line in (ROOT / "results/search.jsonl").read_text(encoding="utf-8").splitlines()]
ROWS = [row for row in ROWS if row["split"] == "validation" and row["student"] == "wrn-16-1"]
PAGE = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
CHARACTERS = json.loads((ROOT / "results/benchmarks/characters.json").read_text(encoding="utf-8"))[
    "accuracies"
]


def gains(variant: str, per_class: int | None = None, overlap: float | None = None) -> list[float]:
    """Points over the plain student of the same overlap and seed, cell by cell."""

    def accuracies(name: str) -> dict[tuple[float, int], float]:
        found = [row for row in ROWS if row["variant"] == name and row["per_class"] == per_class]
        return {(r["overlap"], r["seed"]): r["accuracy"] for r in found if overlap in (None, r["overlap"])}

    alone = accuracies("none")
    return [100 * (value - alone[cell]) for cell, value in accuracies(variant).items()]


def stated(number: str) -> bool:
    return re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", PAGE) is not None


@pytest.mark.parametrize(
    ("variant", "per_class", "cells", "number"),
    [
        ("centred decay", None, 10, "1.4"), ("decay", None, 10, "1.5"), ("paper", None, 10, "0.9"),
        ("sinkhorn+probe", None, 4, "2.2"), ("sinkhorn+probe", 25, 4, "4.3"), ("probe-kd", 25, 4, "4.0"),
        ("data centres, centred", None, 4, "0.7"), ("centred", None, 4, "0.9"), ("divergence", None, 4, "1.0"),
        ("centred", 25, 4, "2.4"), ("paper", 25, 4, "1.9"), ("centred 30, temperature 6", 25, 1, "7.8"),
        ("centred 30", 25, 1, "3.3"),
    ],
)  # fmt: skip
def test_stated_means_are_those_of_the_file(
    variant: str, per_class: int | None, cells: int, number: str
) -> None:
    found = gains(variant, per_class)
    assert len(found) == cells
    assert f"{mean(found):.1f}" == number
    assert stated(number)


def test_single_statements() -> None:
    assert f"{min(gains('centred decay')):.1f}" == "0.5"
    assert f"{min(gains('decay')):.1f}" == "0.9"
    assert sum(gain < 0 for gain in gains("paper")) == 2
    assert [f"{gain:.1f}" for gain in gains("trusted centred", None, 1.0)] == ["4.4"]
    assert [f"{gain:.1f}" for gain in gains("probe-kd", 25, 0.0)] == ["8.2"]
    assert f"{gains('paper', 25, 1.0)[-1]:.1f}" == "4.2"
    assert [f"{gain:.1f}" for gain in gains("decay", 25, 1.0)] == ["1.8"]
    assert f"{mean(gains('rkd')):.0f}" == "-11"
    assert max(gains("rkd")) < 0


def test_sinkhorn_with_a_probe_has_the_best_mean() -> None:
    for per_class, least in ((None, 4), (25, 3)):
        names = {row["variant"] for row in ROWS if row["per_class"] == per_class} - {"none"}
        means = {n: mean(found) for n in names if len(found := gains(n, per_class)) >= least}
        assert max(means, key=means.__getitem__) == "sinkhorn+probe"
    shared = {
        name: mean(found) for name in {row["variant"] for row in ROWS} if (found := gains(name, None, 1.0))
    }
    assert max(shared, key=shared.__getitem__) == "sinkhorn+probe"


@pytest.mark.parametrize(
    ("arm", "number"),
    [
        ("`none`", "37.6"), ("`sinkhorn`", "44.1"), ("`sinkhorn`, `center=false`", "38.0"),
        ("`sinkhorn`, `weight=30`", "48.1"), ("`sinkhorn`, `weight=30 temperature=6`", "39.9"),
        ("`probe-kd`", "55.6"), ("`sinkhorn+probe`", "56.0"),
    ],
)  # fmt: skip
def test_statements_about_characters(arm: str, number: str) -> None:
    assert f"{100 * mean(CHARACTERS[arm]):.1f}" == number
    assert stated(number)


def measured(method: str, column: int) -> tuple[float, float]:
    """Mean gain and its standard error in the table of docs/methods.md; column 0: other classes, 1: same."""
    table = (ROOT / "docs/methods.md").read_text(encoding="utf-8").partition("measured:begin")[2]
    line = next(line for line in table.splitlines() if line.startswith(f"| `{method}` |"))
    gain, error = re.search(r"\(([+-][\d.]+) ± ([\d.]+)\)", line.split("|")[2 + column]).groups()  # type: ignore[union-attr]
    return float(gain), float(error)


def test_statements_about_small_digits() -> None:
    for name in ("sinkhorn", "probe-kd", "sinkhorn+probe"):
        gain, error = measured(name, 0)
        assert gain < 2 * error, f"{name} gains with other classes; the page says it does not"
    assert measured("kd", 1)[0] > 0


def test_the_search_is_what_the_page_calls_it() -> None:
    assert {row["data"] for row in ROWS} == {"cifar100"}
    assert {row["teacher"] for row in ROWS} == {"wrn-40-2"}
    assert {row["seed"] for row in ROWS} == {0, 1}
    assert {(row["per_class"], row["epochs"]) for row in ROWS} == {(None, 60), (25, 200)}
