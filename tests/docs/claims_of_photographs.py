"""Sentences of docs/when-it-helps.md on photographs and a teacher of ImageNet, with the numbers of today."""

from __future__ import annotations

import json
from statistics import mean

from tests.docs.pages import ROOT


def a_teacher_of_imagenet() -> list[str]:
    domains = ("flowers", "cars", "birds")
    rows = json.loads((ROOT / "results/benchmarks/photographs.json").read_text(encoding="utf-8"))["rows"]
    assert {row["count"] for row in rows} == {10}, "other numbers of photographs have been run: tell of them"

    def by_domain(way: str, seeds: int) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["way"] == way:
                found.setdefault(row["domain"], {})[row["seed"]] = 100 * row["accuracy"]
        assert {len(by_seed) for by_seed in found.values()} == {seeds}, f"{way} has been run with other seeds"
        return found

    long, crops, mixed = (
        by_domain(f"alone, {way}", seeds=3) for way in ("photographs", "patient", "mixed")
    )  # fmt: skip
    whole, probe, taught, taught_long = (
        by_domain(way, seeds=1)
        for way in ("alone, patient, whole images", "linear probe on the teacher", "`sinkhorn+probe`",
                    "`sinkhorn+probe`, photographs")
    )  # fmt: skip
    for domain in domains:
        steps = [long[domain][seed] - crops[domain][seed] for seed in (0, 1, 2)]
        assert min(steps) > 0
        assert mean(crops[domain].values()) > mean(mixed[domain].values())
        assert crops[domain][0] > whole[domain][0]
        assert taught[domain][0] - crops[domain][0] < min(
            crops[domain][0] - whole[domain][0], long[domain][0] - crops[domain][0]
        )
    short = {domain: taught[domain][0] - crops[domain][0] for domain in domains}
    assert short["cars"] <= 0
    gain = {domain: found[0] - long[domain][0] for domain, found in taught_long.items()}
    assert set(gain) == {"flowers", "birds"}

    def each(found: dict[str, dict[int, float]]) -> str:
        first, second, third = (mean(found[domain].values()) for domain in domains)
        return f"{first:.1f}, {second:.1f} and {third:.1f} %"

    return [
        f"the student alone reached {each(crops)} by `--recipe patient` so (flowers, cars, birds; three seeds), on "
        f"whole images {each(whole)} (one seed).",
        f"By `--recipe photographs`, four times the steps, it reached {each(long)}, more with every seed:",
        f"worth {short['flowers']:.1f} points on flowers and {short['birds']:.1f} on birds by `sinkhorn+probe` beside "
        "`patient`, on cars",
        f"Beside `photographs` it was worth {gain['flowers']:.1f} on flowers and {gain['birds']:.1f} on birds",
        f"a linear model on its features reaches {each(probe)}.",
    ]
