"""Numbers of results/ as the pages round them."""

from __future__ import annotations

import json
from collections.abc import Collection
from statistics import mean, stdev
from typing import Any

from tests.docs.pages import ROOT


def lines_of(name: str) -> list[dict[str, Any]]:
    text = (ROOT / f"results/{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def rows_of(name: str) -> list[dict[str, Any]]:
    return [row for row in lines_of(name) if row["student"] == "wrn-16-1"]


def flat(name: str) -> str:
    """A page with its line breaks taken out."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


SEARCH = [row for row in rows_of("search") if row["split"] == "validation"]
FIFTH = [row for row in SEARCH if row.get("recipe") == "patient"]
ORDINARY = [row for row in SEARCH if row.get("recipe", "plain") == "plain"]
SHORT = [row for row in ORDINARY if (row["epochs"] == 60 and row["seed"] != 5) or row["per_class"]]
EIGHTH = [row for row in ORDINARY if row["seed"] == 5]  # at two overlaps only
LONG, SMOOTH = ([row for row in ORDINARY if (row["epochs"], row["per_class"], row["seed"]) == (200, None, seed)]
                for seed in (3, 4))  # fmt: skip
ANY_RECIPE = [row for row in rows_of("fig05") if row["split"] == "test"]
TEST_SET = [row for row in ANY_RECIPE if row.get("recipe", "plain") == "plain"]
# `sinkhorn` with the settings that it has by default today.
AS_TODAY = [row for row in TEST_SET if row["variant"] != "sinkhorn" or row["options"]["temperature"] == 6.0]
# Students on images that were mixed in the first half of the epochs, under the names that they have without.
MIXED_EARLY = [{**row, "variant": row["method"]} for row in ANY_RECIPE if row.get("recipe") == "mixed-early"]
COSTS = rows_of("tab08")
EVERY_FEW = [row for row in lines_of("few") if row["data"] == "cifar100"]
EVERY_BIRDS_FEW = [row for row in lines_of("few") if row["data"] == "cub200"]
# Of every teacher of birds on every task, all images, one seed; teachers and students of most tasks were trained twice.
BIRDS = [row for row in lines_of("fig07") if row["data"] == "cub200"]
DOMAINS = lines_of("fig10")
FEW = [row for row in EVERY_FEW if row.get("recipe", "plain") == "plain" and row["per_class"] == 25]
# Mixed as `run` mixes images where they are few.
RUN_FEW = [row for row in EVERY_FEW if row.get("recipe") == "patient-early" and row["per_class"] == 25]
PATIENT_TEN = [row for row in EVERY_FEW if row.get("recipe") == "patient" and row["per_class"] == 10]
PATIENT_MORE = [row for row in EVERY_FEW if row.get("recipe") == "patient" and row["per_class"] in (50, 100)]
HALVES = lines_of("seen")  # students of images that their teacher has seen, and of others
PAGE, WHEN, LIMITS = flat("docs/choosing.md"), flat("docs/when-it-helps.md"), flat("docs/limits.md")
METRICS = flat("docs/metrics.md")
CHARACTERS = json.loads((ROOT / "results/benchmarks/characters.json").read_text(encoding="utf-8"))[
    "accuracies"
]
DIGITS = json.loads((ROOT / "results/benchmarks/methods.json").read_text(encoding="utf-8"))["results"]
PATIENT = json.loads((ROOT / "results/benchmarks/methods_patient.json").read_text(encoding="utf-8"))[
    "results"
]
ON_MIXED = json.loads((ROOT / "results/benchmarks/methods_mixed.json").read_text(encoding="utf-8"))["results"]
CHOICE = json.loads((ROOT / "results/benchmarks/choice.json").read_text(encoding="utf-8"))["rows"]
SIZES = json.loads((ROOT / "results/benchmarks/sizes.json").read_text(encoding="utf-8"))["rows"]
COUNTS = json.loads((ROOT / "results/benchmarks/counts.json").read_text(encoding="utf-8"))["rows"]
DEMO = json.loads((ROOT / "results/benchmarks/demo.json").read_text(encoding="utf-8"))["rows"]
LETTERS, MIXED = (
    json.loads((ROOT / f"results/benchmarks/{name}.json").read_text(encoding="utf-8"))["rows"]
    for name in ("seen", "seen_patient")
)
IGNORANT = {"mislabelled", "untrained"}  # of the demo's teachers, they know no characters
DEFAULT, SOFTER = "centred decay 100, temperature 6", "centred decay 100, temperature 8"
WEAK = "centred decay"  # weight 10, temperature 3
PROBED = "sinkhorn+probe decay 30, temperature 6"  # the default of `sinkhorn+probe`
LITERAL = "sinkhorn, paper's setting"
OTHERS = (0.8, 0.6, 0.4, 0.2, 0.0)
EVERY = (1.0, *OTHERS)


def gains(
    variant: str,
    per_class: int | None = None,
    overlap: float | Collection[float] | None = None,
    seed: int | None = None,
    rows: list[dict[str, Any]] = SHORT,
) -> list[float]:
    """Points over the plain student of the same overlap and seed, cell by cell."""
    wanted = (overlap,) if isinstance(overlap, float) else overlap

    def accuracies(name: str) -> dict[tuple[float, int], float]:
        found = [row for row in rows if row["variant"] == name and row["per_class"] == per_class]
        return {
            (row["overlap"], row["seed"]): row["accuracy"]
            for row in found
            if (wanted is None or row["overlap"] in wanted) and seed in (None, row["seed"])
        }

    alone = accuracies("none")
    return [100 * (value - alone[cell]) for cell, value in accuracies(variant).items()]


def with_error(found: list[float]) -> str:
    """A mean ± its standard error."""
    return f"{mean(found):.1f} ± {stdev(found) / len(found) ** 0.5:.1f}"


def of(cells: int, *args: Any, **options: Any) -> str:
    """The mean of so many cells; a page that says "one seed" or "four overlaps" counts on their number."""
    found = gains(*args, **options)
    assert len(found) == cells, f"{args} has {len(found)} cells"
    return f"{mean(found):.1f}"


def final(overlap: float) -> str:
    """Mean gain on the test set ± its standard error."""
    found = gains("sinkhorn, temperature 8", None, overlap, rows=TEST_SET)
    assert len(found) == 3
    return with_error(found)


def with_ten(method: str) -> str:
    """Mean gains with ten images a class and the patient recipe, two seeds, at 100, 60 and 0 %."""
    first, second, third = (of(2, method, 10, overlap, rows=PATIENT_TEN) for overlap in (1.0, 0.6, 0.0))
    return f"{first}, {second} and {third}"


def with_more(method: str, count: int, overlap: float) -> str:
    """The gain with 50 or 100 images a class and the patient recipe, one seed."""
    return of(1, method, count, overlap, rows=PATIENT_MORE)


def best_alone(count: int, overlap: float, rows: list[dict[str, Any]] = EVERY_FEW) -> dict[int, float]:
    """Accuracies of the student alone by seed, by the recipe that is best on the seeds that all recipes have."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["variant"], row["per_class"], row["overlap"]) == ("none", count, overlap):
            found.setdefault(row.get("recipe", "plain"), {})[row["seed"]] = row["accuracy"]
    known = [by_seed for by_seed in found.values() if len(by_seed) > 1]
    shared = set.intersection(*map(set, known))
    return max(known, key=lambda by_seed: mean(by_seed[seed] for seed in shared))


def over_the_best(
    method: str,
    count: int,
    overlap: float,
    rows: list[dict[str, Any]] = EVERY_FEW,
    recipe: str = "patient-early",
) -> list[float]:
    """Points over that student, seed by seed, by a method whose images were mixed in one of the ways."""
    alone = best_alone(count, overlap, rows)
    taught = [row for row in rows if (row["variant"], row.get("recipe")) == (method, recipe)]
    return [
        100 * (row["accuracy"] - alone[row["seed"]])
        for row in taught
        if (row["per_class"], row["overlap"]) == (count, overlap) and row["seed"] in alone
    ]


def on_half(which: str, method: str, overlap: float) -> str:
    """Mean gain ± its standard error of students of the "first" half, which the teacher has seen, or the "second"."""
    found = gains(method, None, overlap, rows=[row for row in HALVES if row["data"] == f"cifar100-{which}"])
    assert len(found) == 3
    return with_error(found)


def gained(per_class: int | None, method: str, overlap: float, few: list[dict[str, Any]] = FEW) -> str:
    """Mean gain of a method as it is by default on the test set ± its standard error."""
    found = gains(method, per_class, overlap, rows=few if per_class else AS_TODAY)
    assert len(found) == 3
    return with_error(found)


def alone_by_mixing(overlap: float | None = None) -> list[float]:
    """Points that the student alone gained by images that are mixed in the first half of the epochs."""
    mixed = [{**row, "variant": "mixed"} for row in MIXED_EARLY if row["method"] == "none"]
    return gains("mixed", None, overlap, rows=[*AS_TODAY, *mixed])


def reached(method: str, overlap: float, few: list[dict[str, Any]] = FEW) -> str:
    """Mean accuracy in percent with 25 images a class."""
    found = [row["accuracy"] for row in few if (row["variant"], row["overlap"]) == (method, overlap)]
    assert len(found) == 3
    return f"{100 * mean(found):.1f}"


def plain_students(overlap: float) -> list[float]:
    """Accuracies of students alone with all images."""
    return [row["accuracy"] for row in TEST_SET if (row["variant"], row["overlap"]) == ("none", overlap)]


def at_each_overlap(method: str, few: list[dict[str, Any]] = FEW) -> str:
    first, second, third = (reached(method, overlap, few) for overlap in (1.0, 0.6, 0.0))
    return f"{first}, {second} and {third} %"


def characters(method: str, options: str = "") -> str:
    return f"{100 * mean(CHARACTERS[f'`{method}`' + (f', `{options}`' if options else '')]):.1f}"


def with_patience(method: str, options: str = "") -> str:
    return f"{100 * mean(CHARACTERS[f'`{method}`, patient' + (f', `{options}`' if options else '')]):.1f}"


def on_digits(method: str, setting: str) -> list[float]:
    """Gains in points of docs/methods.md, seed by seed; empty where the method refuses."""
    values, plain = DIGITS[method][setting], DIGITS["none"][setting]
    return [] if isinstance(values, str) else [100 * (a - b) for a, b in zip(values, plain, strict=True)]


def percent(table: dict[str, Any], method: str, setting: str) -> str:
    return f"{100 * mean(table[method][setting]):.1f}"


def lost_on_digits() -> str:
    return f"{-mean(on_digits('sinkhorn', 'other classes')):.1f}"


def few(variant: str, overlap: float) -> str:
    """One seed, 25 images a class."""
    return of(1, variant, 25, overlap, 1)


def chosen(column: str, teacher: str, count: int) -> float:
    """Percent, in the benchmark of what `run` does by itself."""
    rows = [row for row in CHOICE if (row["teacher"], row["count"]) == (teacher, count)]
    return 100 * mean(row["accuracies"][column] for row in rows)


def counted(recipe: str, method: str, count: int) -> float:
    """Percent with so many images a class, in the benchmark of how many labels are few."""
    rows = [row for row in COUNTS if (row["recipe"], row["count"]) == (recipe, count)]
    return 100 * mean(row["accuracies"][method] for row in rows)


def of_birds(method: str) -> tuple[str, str, str]:
    """Points gained on CUB with ten images a class over the best student alone, at 100, 50 (two seeds) and 0 %."""
    same, half, other = (
        over_the_best(method, 10, overlap, EVERY_BIRDS_FEW, "patient") for overlap in (1.0, 0.5, 0.0)
    )
    assert (len(same), len(half), len(other)) == (3, 2, 3)
    first, third = map(with_error, (same, other))
    return first, f"{mean(half):.1f}", third


def by_share() -> dict[float, list[float]]:
    """Points that each teacher of birds was worth on each task, by the share of classes that it knows."""
    alone = {
        (row["task"], row["evidence"]["commit"]): row["accuracy"] for row in BIRDS if row["method"] == "none"
    }
    found: dict[float, list[float]] = {}
    for row in BIRDS:
        if row["method"] == "sinkhorn":
            base = alone[row["task"], row["evidence"]["commit"]]
            found.setdefault(row["overlap"], []).append(100 * (row["accuracy"] - base))
    return found


def of_domains(teacher: str, task: str) -> float:
    """Points that a domain's teacher was worth on a domain's task, three seeds."""
    alone = [row["accuracy"] for row in DOMAINS if (row["data"], row["method"]) == (task, "none")]
    taught = [row["accuracy"] for row in DOMAINS
              if (row["data"], row["method"], row["teacher_data"]) == (task, "sinkhorn", teacher)]  # fmt: skip
    assert len(alone) == len(taught) == 3
    return 100 * (mean(taught) - mean(alone))


def by_newness(method: str, rows: list[dict[str, Any]] = LETTERS) -> list[float]:
    """Points that a method gained more with images that were new to the teacher, draw by draw, over all overlaps."""
    found: dict[int, dict[tuple[float, str], float]] = {}
    for row in rows:
        gain = 100 * (row["accuracies"][method] - row["accuracies"]["none"])
        found.setdefault(row["draw"], {})[row["share"], row["way"]] = gain
    return [mean(gains[share, "not seen"] - gain for (share, way), gain in gains.items() if way == "seen")
            for gains in found.values()]  # fmt: skip


def gains_in_demo(teacher: str, rows: list[dict[str, Any]] = DEMO) -> list[float]:
    """Points of each student of a teacher over the one alone of its seed."""
    return [
        100 * (taught - alone)
        for row in rows
        for taught, alone in zip(row["students"][teacher], row["alone"], strict=True)
    ]
