"""What docs/choosing.md, when-it-helps.md, limits.md and metrics.md say is what the kept results say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import mean, median, stdev
from typing import Any

import pytest

from preceptor.models import build
from tests.docs.claims import CHOOSING
from tests.docs.claims_of_photographs import a_teacher_of_imagenet
from tests.docs.claims_of_use import (
    BEST_STUDENTS,
    how_many_are_few,
    in_short,
    limits,
    mixed_images,
    photographs,
    seen_images,
    the_demonstration,
    the_metrics,
    the_ranking,
    when_it_helps,
)
from tests.docs.kept import (
    AS_TODAY,
    COSTS,
    DEMO,
    DIGITS,
    DOMAINS,
    EVERY_FEW,
    FEW,
    HALVES,
    IGNORANT,
    LETTERS,
    LIMITS,
    LONG,
    METRICS,
    PAGE,
    PROBED,
    RUN_FEW,
    SEARCH,
    SHORT,
    SMOOTH,
    TEST_SET,
    WEAK,
    WHEN,
    gains,
    gains_in_demo,
    lines_of,
    on_digits,
    reached,
)
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("page", "claims"),
    [
        *((PAGE, claims) for claims in CHOOSING),
        (WHEN, in_short),
        (WHEN, when_it_helps),
        (WHEN, the_demonstration),
        (WHEN, how_many_are_few),
        (WHEN, the_ranking),
        (WHEN, photographs),
        (WHEN, a_teacher_of_imagenet),
        (WHEN, seen_images),
        (WHEN, mixed_images),
        (LIMITS, limits),
        (METRICS, the_metrics),
    ],
    ids=lambda value: getattr(value, "__name__", "page"),
)
def test_pages_say_what_the_results_say(page: str, claims: Callable[[], list[str]]) -> None:
    for claim in claims():
        assert claim in page


WRITTEN = "gains|counts|demo|seen|seen-patient|photographs|few|few-birds|many"  # tables that tests compare as they are


def without_tables(page: str) -> str:
    return re.sub(f"<!-- ({WRITTEN}):begin.*?({WRITTEN}):end", "", page)


BODY = without_tables(PAGE[PAGE.index("## In short") : PAGE.index("## What the tolerance means")])
TRIALS = PAGE[PAGE.index("## Two first trials") :]  # these are stated there and kept nowhere


@pytest.mark.parametrize(
    ("page", "claims", "known"),
    [
        (BODY, CHOOSING, TRIALS + " 0.1"),  # epsilon
        (without_tables(WHEN),
         (when_it_helps, how_many_are_few, the_demonstration, the_ranking, photographs, seen_images, mixed_images,
          a_teacher_of_imagenet), ""),
        (LIMITS, (limits,), TRIALS),
    ],
    ids=["choosing", "when it helps", "limits"],
)  # fmt: skip
def test_no_number_is_stated_without_a_claim(
    page: str, claims: Sequence[Callable[[], list[str]]], known: str
) -> None:
    held = " ".join([known, *(claim for part in claims for claim in part())])
    assert set(re.findall(r"\d+\.\d+", page)) <= set(re.findall(r"\d+\.\d+", held))


def test_single_statements() -> None:
    assert sum(gain < 0 for gain in gains("paper")) == 2
    assert len(gains(WEAK) + gains(WEAK, rows=[*LONG, *SMOOTH])) == 21
    assert f"{mean(gains('rkd')):.0f}" == "-11"
    assert max(gains("rkd")) < -8
    assert round(mean(gains("rkd", 25, rows=FEW))) == -5
    best = {variant: mean(gains(variant, rows=LONG)) for variant in {row["variant"] for row in LONG}}
    assert max(best, key=best.__getitem__) == PROBED
    short = {
        variant: mean(found) for variant in {row["variant"] for row in SHORT} if (found := gains(variant))
    }
    assert max(short, key=short.__getitem__) == PROBED
    for overlap in (0.6, 0.4):
        assert [gains("paper", None, overlap, seed)[0] < 0 for seed in (0, 1)] == [False, True]


def test_the_demonstrations_teachers_come_out_as_the_page_says() -> None:
    worth = {teacher: gains_in_demo(teacher) for teacher in DEMO[0]["students"]}
    assert all(abs(mean(worth[one])) < stdev(worth[one]) / len(worth[one]) ** 0.5 for one in IGNORANT)
    assert min(gains_in_demo("letters", DEMO[:1])) > 11
    assert max(worth, key=lambda teacher: mean(worth[teacher])) == "letters"
    best = [max(row["students"], key=lambda teacher: mean(row["students"][teacher])) for row in DEMO]
    assert (best.count("letters"), len(best)) == (3, 4)
    for metric, first in (("bridge", "letters"), ("sinkhorn", "digits-0-4"), ("logme", None), ("leep", None)):
        for row in DEMO:
            order = sorted(row["scores"], key=lambda teacher: -row["scores"][teacher][metric])
            assert order[0] == first or first is None
            assert set(order[-2:]) == IGNORANT


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
    assert {(row["epochs"], row["per_class"], row["split"], row["teacher"]) for row in EVERY_FEW} == {
        (200, count, "test", "wrn-40-2") for count in (10, 25, 50, 100)
    }, "few labels have been run with other numbers of images: tell of them"


def test_the_best_students_are_those_that_the_page_names() -> None:
    for overlap in (1.0, 0.6, 0.0):
        students = {row["variant"] for row in RUN_FEW if row["overlap"] == overlap} - {"none", "finetune"}
        found = {name: gains(name, 25, overlap, rows=RUN_FEW) for name in students}
        best = max(found, key=lambda name: mean(found[name]))
        assert (best, overlap) in BEST_STUDENTS
        mine = found["sinkhorn+probe"]
        assert overlap == 1.0 or mean(mine) > mean(found[best]) - stdev(mine) / 3**0.5
    same = {name: mean(gains(name, None, 1.0, rows=TEST_SET)) for name in ("sinkhorn", "probe-kd", "kd")}
    assert max(same.values()) - min(same.values()) < 0.3


def test_with_all_images_rivals_did_what_the_page_says() -> None:
    def gain(name: str, overlap: float) -> float | None:
        return mean(found) if (found := gains(name, None, overlap, rows=AS_TODAY)) else None

    overlaps = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
    others = {row["variant"] for row in AS_TODAY} - {"none", "sinkhorn", "sinkhorn, paper's setting"}
    complete = [name for name in others if None not in [gain(name, overlap) for overlap in overlaps]]
    assert all(gain("sinkhorn", overlap) > 0 for overlap in overlaps)
    assert all(min(gain(name, overlap) for overlap in overlaps) < 0 for name in complete)
    assert all(gain("rkd", overlap) < 0 for overlap in overlaps)
    for overlap in (0.8, 0.6):
        found = {name: gain(name, overlap) for name in others if gain(name, overlap) is not None}
        assert gain("sinkhorn", overlap) > max(found.values())
        assert abs(found["refilled"]) < 0.4
    missing = {(name, overlap) for name in ("aml", "mgd", "wcord") for overlap in (0.6, 0.4, 0.2, 0.0)}
    for name, overlap in missing:
        assert gain(name, overlap) is None, "rivals have been run at other overlaps: tell of them"


def told_apart(first: str, second: str, overlap: float, rows: list[dict[str, Any]]) -> bool:
    """Whether two methods differ by more than two standard errors on the seeds that both have."""
    one, other = (
        {row["seed"]: row["accuracy"] for row in rows if (row["variant"], row["overlap"]) == (name, overlap)}
        for name in (first, second)
    )
    gaps = [one[seed] - other[seed] for seed in one.keys() & other.keys()]
    assert len(gaps) == 3
    return abs(mean(gaps)) > 2 * stdev(gaps) / 3**0.5


def test_what_the_page_calls_noise_is_within_two_standard_errors() -> None:
    for overlap in (1.0, 0.8, 0.6, 0.4):
        assert not told_apart("sinkhorn", "sinkhorn, temperature 8", overlap, AS_TODAY)
    assert not told_apart("sinkhorn", "mgd", 0.8, AS_TODAY)
    apart = {
        cost: told_apart("sinkhorn", cost, 0.6, [*AS_TODAY, *COSTS])
        for cost in ("shallow", "constant", "superclass", "random")
    }
    assert apart == {"shallow": False, "constant": False, "superclass": True, "random": True}


def test_the_best_with_three_seeds_where_few_classes_are_shared_are_those_that_the_page_names() -> None:
    best = {}
    for overlap in (0.2, 0.0):
        names = {row["variant"] for row in AS_TODAY if row["overlap"] == overlap} - {"none"}
        found = {name: gain for name in names if len(gain := gains(name, None, overlap, rows=AS_TODAY)) == 3}
        best[overlap] = sorted(found, key=lambda name: -mean(found[name]))[:3]
    assert best[0.2][0] == "sinkhorn+probe"
    assert best[0.0] == ["probe-kd", "refilled", "sinkhorn+probe"]
    for name in ("probe-kd", "refilled"):
        assert not told_apart("sinkhorn+probe", name, 0.0, AS_TODAY)


def test_patience_alone_is_worth_more_than_any_method_with_the_ordinary_recipe() -> None:
    for overlap in (1.0, 0.6, 0.0):
        names = {row["variant"] for row in FEW} - {"none", "finetune"}
        ordinary = max(float(reached(name, overlap)) for name in names)
        assert float(reached("none", overlap, RUN_FEW)) > ordinary


def test_only_the_gain_on_birds_is_above_two_standard_errors() -> None:
    def gain(domain: str) -> list[float]:
        alone, taught = (
            {row["seed"]: row["accuracy"] for row in DOMAINS
             if (row["data"], row["method"], row["teacher_data"]) == (domain, method, domain)}
            for method in ("none", "sinkhorn")
        )  # fmt: skip
        return [taught[seed] - alone[seed] for seed in alone]

    found = {domain: gain(domain) for domain in {row["data"] for row in DOMAINS}}
    assert {name for name, gaps in found.items() if mean(gaps) > 2 * stdev(gaps) / 3**0.5} == {"birds"}


def test_the_teachers_of_photographs_are_as_good_as_the_page_says() -> None:
    found: dict[str, list[float]] = {}
    for row in lines_of("teachers"):
        found.setdefault(row["data"], []).append(100 * row["accuracy"])
    assert f"trained from scratch to {min(found['cub200']):.0f} to {max(found['cub200']):.0f} %" in WHEN
    assert {
        domain for domain in ("birds", "cars", "dogs", "flowers", "fruits") if found[domain][-1] < 20
    } == {
        "cars",
        "dogs",
    }


def test_logme_is_no_better_than_other_metrics_among_teachers_of_other_domains() -> None:
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| \d of 5 \| (.+) \| (.+) \|$", text, flags=re.MULTILINE)
    regrets = {name: float(regret) for name, _, regret in rows}
    pearsons = {name: float(pearson) for name, pearson, _ in rows if pearson != "–"}
    assert regrets["logme"] >= median(regrets.values())
    assert pearsons["logme"] <= median(pearsons.values())
    assert max(pearsons.values()) < 0.5, "docs/limits.md: no metric's order is that of the students"


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
    assert (len(lost), max(lost) < 0) == (10, True)
    for name in ("probe-kd", "sinkhorn+probe"):
        found = on_digits(name, "other classes")
        assert mean(found) < 0, f"{name} gains with other classes; the page says it does not"
    same = {name: mean(found) for name in DIGITS if (found := on_digits(name, "same classes"))}
    assert max(same, key=same.__getitem__) == "sinkhorn"
    assert same["kd"] > 0


def test_the_gain_of_the_probe_falls_with_the_overlap_where_images_are_new_and_dips_where_they_were_seen() -> (
    None
):
    def gain(share: float, way: str) -> float:
        some = [row["accuracies"] for row in LETTERS if (row["share"], row["way"]) == (share, way)]
        return mean(found["probe-kd"] - found["none"] for found in some)

    new = [gain(share, "not seen") for share in (1.0, 0.6, 0.4, 0.0)]
    assert new == sorted(new, reverse=True)
    assert gain(0.6, "seen") < min(gain(1.0, "seen"), gain(0.4, "seen"))


def test_new_images_are_worth_what_the_pages_say() -> None:
    def gain(method: str, overlap: float, half: str) -> float:
        return mean(
            gains(method, None, overlap, rows=[row for row in HALVES if row["data"] == f"cifar100-{half}"])
        )

    for method in ("sinkhorn", "probe-kd", "sinkhorn+probe"):
        new = [gain(method, overlap, "second") for overlap in (1.0, 0.6, 0.0)]
        assert new == sorted(new, reverse=True)
        assert new[-1] > 0
        assert all(new[place] > gain(method, overlap, "first") for place, overlap in enumerate((1.0, 0.6)))
        assert method == "sinkhorn" or new[1] > gain("sinkhorn", 0.6, "second")
    assert {row["overlap"] for row in HALVES} == {1.0, 0.6, 0.0}, "other overlaps have been run: tell of them"


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
    assert {row["seed"] for row in SEARCH} == {0, 1, 2, 3, 4, 5}
    assert {(row["per_class"], row["epochs"]) for row in SEARCH} == {(None, 60), (None, 200), (25, 200)}
