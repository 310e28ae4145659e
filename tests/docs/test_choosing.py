"""What docs/choosing.md, docs/when-it-helps.md and docs/limits.md say is what the kept results say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from statistics import mean, stdev
from typing import Any

import pytest
from experiments.book import Book
from experiments.glance import gains_table
from experiments.items import fig07

from preceptor.models import build
from tests.docs.pages import ROOT


def rows_of(name: str) -> list[dict[str, Any]]:
    text = (ROOT / f"results/{name}.jsonl").read_text(encoding="utf-8")
    return [row for line in text.splitlines() if (row := json.loads(line))["student"] == "wrn-16-1"]


def flat(name: str) -> str:
    """A page with its line breaks taken out."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


SEARCH = [row for row in rows_of("search") if row["split"] == "validation"]
FIFTH = [row for row in SEARCH if row.get("recipe") == "patient"]
SHORT = [row for row in SEARCH if row not in FIFTH and (row["epochs"] == 60 or row["per_class"])]
LONG = [row for row in SEARCH if row["epochs"] == 200 and not row["per_class"]]
TEST_SET = [row for row in rows_of("fig05") if row["split"] == "test"]
EVERY_FEW = [
    json.loads(line) for line in (ROOT / "results/few.jsonl").read_text(encoding="utf-8").splitlines()
]
FEW = [row for row in EVERY_FEW if row.get("recipe", "plain") == "plain" and row["per_class"] == 25]
PATIENT_FEW = [row for row in EVERY_FEW if row.get("recipe") == "patient"]
PAGE, WHEN, LIMITS = flat("docs/choosing.md"), flat("docs/when-it-helps.md"), flat("docs/limits.md")
CHARACTERS = json.loads((ROOT / "results/benchmarks/characters.json").read_text(encoding="utf-8"))[
    "accuracies"
]
DIGITS = json.loads((ROOT / "results/benchmarks/methods.json").read_text(encoding="utf-8"))["results"]
PATIENT = json.loads((ROOT / "results/benchmarks/methods_patient.json").read_text(encoding="utf-8"))[
    "results"
]
DEFAULT, SOFTER = "centred decay 100, temperature 6", "centred decay 100, temperature 8"
WEAK = "centred decay"  # weight 10, temperature 3
PROBED = "sinkhorn+probe decay 30, temperature 6"  # the default of `sinkhorn+probe`
LITERAL = "sinkhorn, paper's setting"
OTHERS = (0.8, 0.6, 0.4, 0.2, 0.0)


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


def of(cells: int, *args: Any, **options: Any) -> str:
    """The mean of so many cells; a page that says "one seed" or "four overlaps" counts on their number."""
    found = gains(*args, **options)
    assert len(found) == cells, f"{args} has {len(found)} cells"
    return f"{mean(found):.1f}"


def final(overlap: float) -> str:
    """Mean gain on the test set ± its standard error."""
    found = gains("sinkhorn, temperature 8", None, overlap, rows=TEST_SET)
    assert len(found) == 3
    return f"{mean(found):.1f} ± {stdev(found) / 3**0.5:.1f}"


def gained(per_class: int | None, method: str, overlap: float, few: list[dict[str, Any]] = FEW) -> str:
    """Mean gain of a method as it is by default on the test set ± its standard error."""
    rows = [row for row in TEST_SET if row["variant"] != "sinkhorn" or row["options"]["temperature"] == 6.0]
    found = gains(method, per_class, overlap, rows=few if per_class else rows)
    assert len(found) == 3
    return f"{mean(found):.1f} ± {stdev(found) / 3**0.5:.1f}"


def reached(method: str, overlap: float, few: list[dict[str, Any]] = FEW) -> str:
    """Mean accuracy in percent with 25 images a class."""
    found = [row["accuracy"] for row in few if (row["variant"], row["overlap"]) == (method, overlap)]
    assert len(found) == 3
    return f"{100 * mean(found):.1f}"


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


def of_the_table() -> list[str]:
    return [" ".join(gains_table(Book()).split())]


def the_test_set() -> list[str]:
    return [
        f"temperature 8 gained less: {final(1.0)}, {final(0.8)}, {final(0.6)} and {final(0.4)} at 100 to 40 %",
        f"constant, not centred) gained {of(1, LITERAL, rows=TEST_SET)}.",
    ]


def the_search() -> list[str]:
    return [
        f"after 60 epochs ({of(4, WEAK, seed=2)} points against {of(4, DEFAULT, seed=2)} on average over four overlaps "
        f"of one seed) and after 200 ({of(3, WEAK, rows=LONG)} against {of(3, DEFAULT, rows=LONG)} over three); it "
        f"gained in all 17 cells, {min(gains(WEAK) + gains(WEAK, rows=LONG)):.1f} at least.",
        f"gained {of(10, 'paper')} on average and lost in two of ten cells",
        f"The search had promised more: {few(DEFAULT, 1.0)} at 100 % and {few(DEFAULT, 0.6)} at 60 %, one seed each",
    ]  # fmt: skip


def digits_and_characters() -> list[str]:
    return [
        f"`sinkhorn` gained {mean(on_digits('sinkhorn', 'same classes')):.1f} points with the same classes, more than "
        f"any other method, and lost {lost_on_digits()} with other classes, in each of five",
        "weight 30 at temperature 3 did better than the default "
        f"({characters('sinkhorn', 'weight=30 temperature=3')} % against {characters('sinkhorn')} %)",
    ]  # fmt: skip


def the_probe() -> list[str]:
    steady, strong = (
        f"weight={weight} temperature={t} schedule=constant" for weight, t in ((10, 3), (100, 8))
    )
    return [
        f"took students from {characters('none')} % to {characters('sinkhorn+probe')} %, `probe-kd` to "
        f"{characters('probe-kd')} %, and `sinkhorn` alone to {characters('sinkhorn')} %.",
        f"{of(4, PROBED)} on average after 60 epochs, {of(3, PROBED, rows=LONG)} after 200, and never less than "
        f"{min(gains(PROBED) + gains(PROBED, rows=LONG)):.1f}.",
        f"gained {of(6, 'sinkhorn+probe', 25, rows=FIFTH)} on average, the falling default "
        f"{of(6, PROBED, 25, rows=FIFTH)}; on characters it reached {with_patience('sinkhorn+probe', steady)} % against "
        f"{with_patience('sinkhorn+probe')} %; on the small digits {percent(PATIENT, 'sinkhorn+probe', 'other classes')} % "
        f"with other classes, where `probe-kd` has {percent(PATIENT, 'probe-kd', 'other classes')} %.",
        f"Weight 100 at temperature 8, constant, gained {of(6, 'sinkhorn+probe 100, temperature 8', 25, rows=FIFTH)} in "
        f"that search, but reached {with_patience('sinkhorn+probe', strong)} % on characters.",
    ]  # fmt: skip


def without_labels() -> list[str]:
    from preceptor.distill.losses import METHODS

    named = ["sinkhorn", "probe-kd", "sinkhorn+probe", "kd", "rkd", "dist"]
    assert {name for name, method in METHODS.items() if method.uses_unlabelled} == set(named)
    *most, last = (f"`{name}`" for name in named)

    def step(method: str) -> str:
        before, after = (
            mean(CHARACTERS[f"`{method}`, patient{more}"]) for more in ("", ", more images without labels")
        )
        return f"{100 * before:.1f} to {100 * after:.1f} %"

    return [
        f"{', '.join(most)} and {last} can use images that nobody has labelled",
        f"`sinkhorn+probe` from {step('sinkhorn+probe')} and `probe-kd` from {step('probe-kd')}; `sinkhorn` alone went "
        f"from {step('sinkhorn')}.",
    ]  # fmt: skip


def recipe() -> list[str]:
    def step(method: str) -> str:
        return f"{characters(method)} to {100 * mean(CHARACTERS[f'`{method}`, patient']):.1f} %"

    def on_few_digits(method: str, setting: str) -> str:
        return f"{percent(DIGITS, method, setting)} to {percent(PATIENT, method, setting)} %"

    fine = 100 * mean(CHARACTERS["the teacher's network, fine-tuned"])
    return [
        f"`sinkhorn` from {step('sinkhorn')}, `sinkhorn+probe` from {step('sinkhorn+probe')} and `probe-kd` from "
        f"{step('probe-kd')}, nearly what the teacher's own network reached when fine-tuned ({fine:.1f} %), and the "
        f"student alone from {step('none')}.",
        f"`sinkhorn` from {on_few_digits('sinkhorn', 'other classes')} with other classes and from "
        f"{on_few_digits('sinkhorn', 'same classes')} with the same; the student alone went from "
        f"{on_few_digits('none', 'other classes')}, so",
        f"took the student alone from {at_each_overlap('none')} to {at_each_overlap('none', PATIENT_FEW)}, `sinkhorn` "
        f"from {at_each_overlap('sinkhorn')} to {at_each_overlap('sinkhorn', PATIENT_FEW)}, and `probe-kd` from "
        f"{at_each_overlap('probe-kd')} to {at_each_overlap('probe-kd', PATIENT_FEW)} with 100, 60 and 0 % common classes",
    ]  # fmt: skip


def settings() -> list[str]:
    return [
        f"weight 100 lost {-mean(gains('centred decay 100')):.1f} at temperature 3, and gained {of(4, DEFAULT)} at 6; "
        f"at 6, 30 gained {of(4, 'centred decay 30, temperature 6')}. Characters: {characters('sinkhorn')} % with "
        f"100 and {characters('sinkhorn', 'weight=30')} % with 30; at temperature 3, "
        f"{characters('sinkhorn', 'weight=10 temperature=3')} % with 10 and "
        f"{characters('sinkhorn', 'weight=30 temperature=3')} % with 30; {characters('none')} % alone",
        f"8 gained {of(4, SOFTER)} with 400 images (6: {of(4, DEFAULT)}), and with 25 images {few(SOFTER, 1.0)} and "
        f"{few(SOFTER, 0.6)} (6: {few(DEFAULT, 1.0)} and {few(DEFAULT, 0.6)}). Characters: "
        f"{characters('sinkhorn', 'temperature=8')} % with 8",
        f"search, weight 10, not centred: +{of(10, 'decay')} on average and never below +{min(gains('decay')):.1f}, "
        f"against +{of(10, 'paper')} and two losses for `constant`. Weight 100, 25 images: `constant` gained "
        f"{few('centred 100, temperature 6', 1.0)} with the same classes (falling: {few(DEFAULT, 1.0)}) and "
        f"{few('centred 100, temperature 6', 0.6)} with 60 % of them (falling: {few(DEFAULT, 0.6)}). Characters: "
        f"{characters('sinkhorn', 'schedule=constant')} % with `constant`, {characters('sinkhorn')} % falling. Patient "
        f"recipe, 25 images: `constant` {of(6, 'centred 100, temperature 6', 25, rows=FIFTH)} on average, falling "
        f"{of(6, DEFAULT, 25, rows=FIFTH)}; characters {with_patience('sinkhorn', 'schedule=constant')} % against "
        f"{with_patience('sinkhorn')} %",
        f"no difference with 400 images (+{mean(gains(WEAK, seed=0) + gains(WEAK, seed=1)):.1f} against "
        f"+{of(10, 'decay')}); with 25, constant weight, +{of(6, 'centred', 25)} against +{of(6, 'paper', 25)}. "
        f"Characters: {characters('sinkhorn', 'center=false')} % without",
        f"on characters `-o weight=30` alone reached {characters('sinkhorn', 'weight=30')} %, with `-o temperature=3` "
        f"{characters('sinkhorn', 'weight=30 temperature=3')} %.",
        f"stored means made no difference (+{of(4, 'data centres, centred')} against +{of(4, 'centred')})",
        f"the divergence made no difference (+{of(4, 'divergence')} against +{of(4, 'centred')})",
    ]  # fmt: skip


def when_it_helps() -> list[str]:
    return [
        f"`sinkhorn` gained {gained(25, 'sinkhorn', 1.0)} points with the same classes, `sinkhorn+probe` "
        f"{gained(25, 'sinkhorn+probe', 0.6)} with 60 % of them, `probe-kd` {gained(25, 'probe-kd', 0.0)} with none",
        f"The student alone then reaches {at_each_overlap('none', PATIENT_FEW)} instead of {at_each_overlap('none')} with "
        f"100, 60 and 0 % common classes, and `sinkhorn` gains {gained(25, 'sinkhorn', 1.0, PATIENT_FEW)}, "
        f"{gained(25, 'sinkhorn', 0.6, PATIENT_FEW)} and {gained(25, 'sinkhorn', 0.0, PATIENT_FEW)} points on top of "
        f"that, `probe-kd` {gained(25, 'probe-kd', 1.0, PATIENT_FEW)}, {gained(25, 'probe-kd', 0.6, PATIENT_FEW)} and "
        f"{gained(25, 'probe-kd', 0.0, PATIENT_FEW)}.",
        f"{gained(None, 'sinkhorn', 1.0)} points with the same classes, {gained(None, 'sinkhorn', 0.8)} at 80 % common "
        f"ones, {gained(None, 'sinkhorn', 0.6)} at 60 %, {gained(None, 'sinkhorn', 0.4)} at 40 %, "
        f"{gained(None, 'sinkhorn', 0.2)} at 20 % and {gained(None, 'sinkhorn', 0.0)} with none",
        f"{reached('finetune', 1.0)}, {reached('finetune', 0.6)} and {reached('finetune', 0.0)} % with 100, 60 and 0 % "
        f"common classes, where the best students from teachers reached {reached('sinkhorn', 1.0, PATIENT_FEW)}, "
        f"{reached('sinkhorn+probe, falling', 0.6, PATIENT_FEW)} and {reached('probe-kd', 0.0, PATIENT_FEW)} %",
        f"`sinkhorn` lost {lost_on_digits()} points with other classes",
        f"it gained instead: {percent(PATIENT, 'sinkhorn', 'other classes')} % where the best student without a "
        f"teacher had {percent(DIGITS, 'none', 'other classes')} %.",
    ]  # fmt: skip


def the_ranking() -> list[str]:
    rows = fig07.merged(Book().rows(fig07.SCORES, data="cifar100", per_class=25))
    zoo = json.loads((ROOT / "results/benchmarks/assessment.json").read_text(encoding="utf-8"))
    truth = zoo["accuracies"]

    def lost(metric: str) -> float:
        places = {
            task: max(range(13), key=scores.__getitem__) for task, scores in zoo["scores"][metric].items()
        }
        if metric == "sinkhorn":
            assert {zoo["teachers"][place] for place in places.values()} == {"letters-one-epoch"}
        return mean(100 * (max(truth[task]) - truth[task][place]) for task, place in places.items())

    blind = mean(100 * (max(found) - mean(found)) for found in truth.values())
    first, second = (fig07.quality(rows, metric)["regret"] for metric in ("bridge", "sinkhorn"))
    assert (len(rows), len(truth)) == (72, 5)
    return [
        f"`bridge`, lost {first:.2f} points on average against the best of twelve teachers of CIFAR-100, and "
        f"{lost('bridge'):.2f} against the best of thirteen of characters, where a blind choice loses {blind:.1f}",
        f"The paper's own metric lost {second:.1f} and {lost('sinkhorn'):.1f}.",
    ]  # fmt: skip


def limits() -> list[str]:
    return [
        f"gained {100 * (mean(CHARACTERS['`sinkhorn`']) - mean(CHARACTERS['`none`'])):.1f} points on rendered",
        f"lost {lost_on_digits()} on small handwritten digits",
        f"{gained(None, 'sinkhorn', 0.8)} points at 80 %, {gained(None, 'sinkhorn', 0.6)} at 60 %, "
        f"{gained(None, 'sinkhorn', 0.4)} at 40 %, {gained(None, 'sinkhorn', 0.2)} at 20 % and "
        f"{gained(None, 'sinkhorn', 0.0)} with none",
        f"{reached('finetune', 1.0)}, {reached('finetune', 0.6)} and {reached('finetune', 0.0)} %",
    ]  # fmt: skip


CHOOSING = (of_the_table, the_test_set, the_search, digits_and_characters, the_probe, settings, recipe,
            without_labels)  # fmt: skip


@pytest.mark.parametrize(
    ("page", "claims"),
    [*((PAGE, claims) for claims in CHOOSING), (WHEN, when_it_helps), (WHEN, the_ranking), (LIMITS, limits)],
    ids=lambda value: getattr(value, "__name__", "page"),
)
def test_pages_say_what_the_results_say(page: str, claims: Callable[[], list[str]]) -> None:
    for claim in claims():
        assert claim in page


def test_no_number_is_stated_without_a_claim() -> None:
    """Those of the first trials stand on the page itself; 0.1 is epsilon."""
    body = PAGE[PAGE.index("## In short") : PAGE.index("## What the tolerance means")]
    claims = " ".join(claim for part in CHOOSING for claim in part())
    known = {*re.findall(r"\d+\.\d+", claims + PAGE[PAGE.index("## Two first trials") :]), "0.1"}
    assert set(re.findall(r"\d+\.\d+", body)) <= known


def test_single_statements() -> None:
    assert sum(gain < 0 for gain in gains("paper")) == 2
    assert len(gains(WEAK) + gains(WEAK, rows=LONG)) == 17
    assert f"{mean(gains('rkd')):.0f}" == "-11"
    assert max(gains("rkd")) < 0
    assert round(mean(gains("rkd", 25, rows=FEW))) == -5
    best = {variant: mean(gains(variant, rows=LONG)) for variant in {row["variant"] for row in LONG}}
    assert max(best, key=best.__getitem__) == PROBED
    short = {
        variant: mean(found) for variant in {row["variant"] for row in SHORT} if (found := gains(variant))
    }
    assert max(short, key=short.__getitem__) == PROBED
    for overlap in (0.6, 0.4):
        found = gains("paper", None, overlap)
        assert sum(gain < 0 for gain in found) == sum(gain > 0 for gain in found)


def test_the_test_set_is_what_the_page_calls_it() -> None:
    for variant, temperature, weight in (
        ("sinkhorn, temperature 8", 8.0, 100.0),
        ("sinkhorn", 6.0, 100.0),
        ("sinkhorn+probe", 6.0, 30.0),
    ):
        some = [
            row
            for row in TEST_SET
            if (row["variant"], row["options"].get("temperature")) == (variant, temperature)
        ]
        settings = {tuple(row["options"][name] for name in ("weight", "schedule", "center")) for row in some}
        assert settings == {(weight, "linear-decay", True)}
        assert {(row["epochs"], row["teacher"], row["per_class"]) for row in some} == {
            (200, "wrn-40-2", None)
        }
    some = [
        row for row in EVERY_FEW if row["per_class"] != 10
    ]  # of ten images there is one seed at one overlap
    assert {(row["epochs"], row["per_class"], row["split"], row["teacher"]) for row in some} == {
        (200, 25, "test", "wrn-40-2")
    }, "few labels have been run with other numbers of images: tell of them"
    assert len(EVERY_FEW) - len(some) < 10
    steady = {row["overlap"] for row in PATIENT_FEW if row["variant"] == "sinkhorn+probe"}
    assert not steady, "the setting of the patient recipe has been run: the page says that it has not"


def test_the_refilled_and_gentle_students_gained_where_the_page_says() -> None:
    def where(variant: str) -> set[float]:
        return {overlap for overlap in (1.0, 0.6, 0.0) if mean(gains(variant, 25, overlap, rows=FEW)) > 0}

    assert where("rkd, a fifth of its weights") == {1.0, 0.0}
    assert where("refilled") == {0.0}


def test_the_teacher_is_so_many_times_the_student() -> None:
    large, small = (sum(p.numel() for p in build(arch, 50).parameters()) for arch in ("wrn-40-2", "wrn-16-1"))
    assert f"{large / small:.0f} times the student's parameters" in PAGE


def test_statements_about_small_digits() -> None:
    lost = on_digits("sinkhorn", "other classes")
    assert (len(lost), max(lost) < 0) == (5, True)
    for name in ("probe-kd", "sinkhorn+probe"):
        found = on_digits(name, "other classes")
        assert mean(found) < 0, f"{name} gains with other classes; the page says it does not"
    same = {name: mean(found) for name in DIGITS if (found := on_digits(name, "same classes"))}
    assert max(same, key=same.__getitem__) == "sinkhorn"
    assert same["kd"] > 0


def test_the_defaults_are_those_of_the_page() -> None:
    from inspect import signature

    from preceptor.distill.losses import METHODS

    options = signature(METHODS["sinkhorn"].__init__).parameters
    for name in (
        "weight",
        "temperature",
        "epsilon",
        "schedule",
        "center",
        "centers",
        "normalize",
        "value",
        "cost",
    ):
        default = options[name].default
        shown = f"{default:g}" if isinstance(default, float) else str(default).lower()
        assert re.search(rf"\| `{name}` \| `?{re.escape(shown)}`? \|", PAGE), f"{name} is {shown}"


def test_the_search_is_what_the_page_calls_it() -> None:
    assert {row["data"] for row in SEARCH} == {"cifar100"}
    assert {row["teacher"] for row in SEARCH} == {"wrn-40-2"}
    assert {row["seed"] for row in SEARCH} == {0, 1, 2, 3}
    assert {(row["per_class"], row["epochs"]) for row in SEARCH} == {(None, 60), (None, 200), (25, 200)}
