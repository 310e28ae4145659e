"""Sentences of docs/choosing.md with the numbers that results/ has today."""

from __future__ import annotations

from statistics import mean

from tests.docs.kept import (
    AS_TODAY,
    CHARACTERS,
    CHOICE,
    COSTS,
    DEFAULT,
    DIGITS,
    FIFTH,
    LITERAL,
    LONG,
    ON_MIXED,
    PATIENT,
    PROBED,
    RUN_FEW,
    SIZES,
    SMOOTH,
    SOFTER,
    TEST_SET,
    WEAK,
    at_each_overlap,
    characters,
    chosen,
    few,
    final,
    gained,
    gains,
    lost_on_digits,
    of,
    on_digits,
    percent,
    reached,
    with_patience,
    with_ten,
)


def the_test_set() -> list[str]:
    lost = [mean(gains("probe-kd", None, overlap, rows=TEST_SET)) for overlap in (0.8, 0.6, 0.4)]
    return [
        f"temperature 8 gained less: {final(1.0)}, {final(0.8)}, {final(0.6)} and {final(0.4)} at 100 to 40 %",
        f"constant, not centred) gained {of(1, LITERAL, rows=TEST_SET)}.",
        f"With the same classes `probe-kd` and `kd` ({gained(None, 'kd', 1.0)}) were level with it.",
        f"`mgd` came nearest with {gained(None, 'mgd', 0.8)} at 80 %, within the noise, `refilled` gained nothing, and "
        "`probe-kd` lost "
        f"{-max(lost):.1f} to {-min(lost):.1f} points from 80 to 40 %.",
        f"gained {gained(None, 'refilled', 0.4)} at 40 %, about as much, and {gained(None, 'refilled', 0.2)} and "
        f"{gained(None, 'refilled', 0.0)} at 20 and 0 %, more; `probe-kd` gained "
        f"{gained(None, 'probe-kd', 0.0)} at 0 %.",
    ]


def the_cost() -> list[str]:
    gain = {
        name: mean(gains(name, None, 0.6, rows=[*AS_TODAY, *COSTS]))
        for name in ("sinkhorn", "shallow", "constant", "superclass", "random")
    }
    return [
        "60 % in common: {sinkhorn:+.1f}, with the shallow cost {shallow:+.1f}, with a constant one {constant:+.1f}, "
        "with that of superclasses {superclass:+.1f} and with a random one {random:+.1f}: a wrong".format(**gain)
    ]  # fmt: skip


def the_search() -> list[str]:
    return [
        f"after 60 epochs ({of(4, WEAK, seed=2)} points against {of(4, DEFAULT, seed=2)} on average over four overlaps "
        f"of one seed) and after 200 ({of(3, WEAK, rows=LONG)} against {of(3, DEFAULT, rows=LONG)} over three "
        f"of one seed, {of(4, WEAK, rows=SMOOTH)} against {of(4, DEFAULT, rows=SMOOTH)} over four of another); it "
        f"gained in all 21 cells, {min(gains(WEAK) + gains(WEAK, rows=[*LONG, *SMOOTH])):.1f} at least.",
        f"gained {of(10, 'paper')} on average and lost in two of ten cells",
        f"The search had promised more: {few(DEFAULT, 1.0)} at 100 % and {few(DEFAULT, 0.6)} at 60 %, one seed each",
    ]  # fmt: skip


def digits_and_characters() -> list[str]:
    return [
        f"`sinkhorn` gained {mean(on_digits('sinkhorn', 'same classes')):.1f} points with the same classes, more than "
        f"any other method, and lost {lost_on_digits()} with other classes, in each of ten",
        "weight 30 at temperature 3 did better than the default "
        f"({characters('sinkhorn', 'weight=30 temperature=3')} % against {characters('sinkhorn')} %)",
    ]  # fmt: skip


def the_probe() -> list[str]:
    steady, strong = (
        f"weight={weight} temperature={t} schedule=constant" for weight, t in ((10, 3), (100, 8))
    )
    assert of(4, PROBED) == of(4, SOFTER)
    behind = float(reached("sinkhorn", 1.0, RUN_FEW)) - float(reached("sinkhorn+probe", 1.0, RUN_FEW))
    return [
        f"took students from {characters('none')} % to {characters('sinkhorn+probe')} %, `probe-kd` to "
        f"{characters('probe-kd')} %, and `sinkhorn` alone to {characters('sinkhorn')} %.",
        f"{of(4, PROBED)} on average after 60 epochs (as did `sinkhorn` at temperature 8), {of(3, PROBED, rows=LONG)} "
        "after 200, and never less than "
        f"{min(gains(PROBED) + gains(PROBED, rows=LONG)):.1f}.",
        f"gained {of(6, 'sinkhorn+probe', 25, rows=FIFTH)} on average, the falling default "
        f"{of(6, PROBED, 25, rows=FIFTH)}; on characters it reached {with_patience('sinkhorn+probe', steady)} % "
        f"against {with_patience('sinkhorn+probe')} %; on the small digits "
        f"{percent(PATIENT, 'sinkhorn+probe', 'other classes')} % with other classes, where `probe-kd` has "
        f"{percent(PATIENT, 'probe-kd', 'other classes')} %.",
        f"common classes, {behind:.1f} points behind `sinkhorn` with the same classes",
        f"with 10 it gained {with_ten('sinkhorn+probe')} at 100, 60 and 0 %, `probe-kd` {with_ten('probe-kd')}, "
        f"`sinkhorn` {with_ten('sinkhorn')}, over a student alone whose images were mixed to the end as well.",
        f"Weight 100 at temperature 8, constant, gained {of(6, 'sinkhorn+probe 100, temperature 8', 25, rows=FIFTH)} "
        f"in that search, but reached {with_patience('sinkhorn+probe', strong)} % on characters.",
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
        f"{on_few_digits('none', 'other classes')}. By `mixed` the student alone reached "
        f"{percent(ON_MIXED, 'none', 'other classes')} % there",
        f"took the student alone from {at_each_overlap('none')} to {at_each_overlap('none', RUN_FEW)}, `sinkhorn` "
        f"from {at_each_overlap('sinkhorn')} to {at_each_overlap('sinkhorn', RUN_FEW)}, and `probe-kd` from "
        f"{at_each_overlap('probe-kd')} to {at_each_overlap('probe-kd', RUN_FEW)} with 100, 60 and 0 % common "
        "classes",
    ]  # fmt: skip


def settings() -> list[str]:
    def smooth(epsilon: str) -> str:
        return of(4, f"{DEFAULT}, epsilon {epsilon}", rows=SMOOTH)

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
        f"Characters: {characters('sinkhorn', 'epsilon=0.03')} % with 0.03, {characters('sinkhorn')} % with 0.1, "
        f"{characters('sinkhorn', 'epsilon=0.3')} % with 0.3 and {characters('sinkhorn', 'epsilon=1')} % with 1; with "
        f"the patient recipe {with_patience('sinkhorn', 'epsilon=0.3')} % with 0.3 and {with_patience('sinkhorn')} % "
        "with 0.1.",
        f"CIFAR-100, one seed, 200 epochs, four overlaps: {smooth('0.03')} on average with 0.03, "
        f"{of(4, DEFAULT, rows=SMOOTH)} with 0.1, {smooth('0.3')} with 0.3 and {smooth('1')} with 1.",
        f"stored means made no difference (+{of(4, 'data centres, centred')} against +{of(4, 'centred')})",
        f"the divergence made no difference (+{of(4, 'divergence')} against +{of(4, 'centred')})",
    ]  # fmt: skip


def image_size() -> list[str]:
    def gain(teacher: str, method: str) -> float:
        some = [row["accuracies"][method] for row in SIZES if row["teacher"] == teacher]
        return 100 * mean(found["as they are"] - found["shrunk beforehand"] for found in some)

    worth = [
        gain(teacher, method)
        for teacher in ("letters", "digits")
        for method in ("sinkhorn", "sinkhorn+probe")
    ]
    return [
        f"that was worth {min(worth):.1f} to {max(worth):.1f} points over images that were shrunk beforehand"
    ]


def what_run_does() -> list[str]:
    counts = (10, 20, 160)
    letters = [row["accuracies"] for row in CHOICE if row["teacher"] == "letters"]
    assert all(found["sinkhorn+probe"] > max(found["sinkhorn"], found["plain"]) for found in letters)
    (missed,) = (row for row in CHOICE if row["teacher"] == "letters"
                 and row["accuracies"]["chosen"] != row["accuracies"]["sinkhorn+probe"])  # fmt: skip
    assert (missed["count"], missed["accuracies"]["chosen"]) == (160, missed["accuracies"]["plain"])
    gain = {method: chosen(method, "letters", 160) - chosen("plain", "letters", 160)
            for method in ("sinkhorn", "sinkhorn+probe")}  # fmt: skip
    ahead = chosen("chosen, all labels", "letters", 160) - chosen("plain, all labels", "letters", 160)
    best = [max("sinkhorn", "sinkhorn+probe", key=lambda method: chosen(method, "digits", n)) for n in counts]
    assert best[:2] == ["sinkhorn", "sinkhorn"]
    assert abs(chosen("sinkhorn", "digits", 160) - chosen("sinkhorn+probe", "digits", 160)) < 0.5
    digits = [row for row in CHOICE if row["teacher"] == "digits" and row["count"] == 160]
    (kept,) = (
        row["accuracies"] for row in digits if row["accuracies"]["chosen"] == row["accuracies"]["plain"]
    )
    assert {round(100 * (kept[method] - kept["plain"])) for method in ("sinkhorn", "sinkhorn+probe")} == {6}
    cost = [
        chosen(method, "digits", n) - chosen("chosen", "digits", n)
        for method, n in zip(best, counts, strict=True)
    ]
    added = [
        chosen("chosen, all labels", teacher, count) - chosen("chosen", teacher, count)
        for teacher in ("digits", "letters")
        for count in counts
    ]
    return [
        f"in {len(letters) - 1} of {len(letters)} runs; once, with 160 images, they chose the plain student",
        f"With 160 images `sinkhorn+probe` gained {gain['sinkhorn+probe']:.1f} points there and `sinkhorn` lost "
        f"{-gain['sinkhorn']:.1f},",
        f"in the end, on all labels, what `run` kept was {ahead:.1f} points ahead of the plain student.",
        f"of the test split, cost {cost[0]:.1f}, {cost[1]:.1f} and {cost[2]:.1f} points against always taking the "
        "better of the two. "
        f"The last training added {min(added):.1f} to {max(added):.1f} points.",
    ]


CHOOSING = (the_test_set, the_cost, the_search, digits_and_characters, the_probe, settings, recipe,
            without_labels, image_size, what_run_does)  # fmt: skip
