"""Sentences of docs/when-it-helps.md, limits.md and metrics.md with the numbers that results/ has today."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from experiments.book import Book
from experiments.items import fig05, fig07, fig07_repeats

from tests.docs.kept import (
    AS_TODAY,
    CHARACTERS,
    DEMO,
    DIGITS,
    EVERY,
    EVERY_BIRDS_FEW,
    HALVES,
    IGNORANT,
    LETTERS,
    MIXED,
    MIXED_EARLY,
    ON_MIXED,
    OTHERS,
    PATIENT,
    RUN_FEW,
    alone_by_mixing,
    at_each_overlap,
    by_newness,
    by_share,
    counted,
    gained,
    gains,
    gains_in_demo,
    lines_of,
    lost_on_digits,
    of,
    of_domains,
    on_half,
    over_the_best,
    percent,
    plain_students,
    reached,
    with_error,
)
from tests.docs.pages import ROOT


def how_many_are_few() -> list[str]:
    counts, methods = (5, 10, 20, 40, 80, 160), ("none", "sinkhorn", "probe-kd", "sinkhorn+probe")
    by_teacher = {
        count: counted("patient", "sinkhorn+probe", count) - counted("patient", "none", count)
        for count in counts
    }
    patience = {
        count: counted("patient", "none", count) - counted("small", "none", count) for count in counts
    }
    further = [counted("patient", "none", count) - counted("mixed", "none", count) for count in counts]
    former = {
        (method, count): counted("patient", method, count)
        - counted("180 epochs, mixed to the end", method, count)
        for method in methods
        for count in counts
    }
    mixing = {
        (method, count): counted("mixed", method, count) - counted("small", method, count)
        for method in methods
        for count in counts
    }
    assert min(mixing.values()) > 0
    alone = [mixing["none", count] for count in counts]
    lost = counted("small", "none", 160) - counted("small", "sinkhorn", 160)
    assert (
        counted("patient", "none", 40)
        < counted("patient", "sinkhorn+probe", 20)
        < counted("patient", "none", 80)
    )
    assert abs(by_teacher[160]) < 1
    assert all(counted("patient", "sinkhorn", n) < counted("patient", "none", n) for n in (80, 160))
    longer = [former["none", count] for count in counts]
    taught = [former[method, count] for method in methods[1:] for count in (5, 10)]
    more = [former[method, count] for method in methods[1:] for count in counts[2:]]
    assert all(former[method, n] < former["none", n] for method in methods[1:] for n in counts[1:])
    return [
        f"`sinkhorn+probe` gained {by_teacher[5]:.1f} points at 5 images a class, {by_teacher[10]:.1f} at 10, "
        f"{by_teacher[20]:.1f} at 20, {by_teacher[40]:.1f} at 40, {by_teacher[80]:.1f} at 80 and nothing at 160",
        f"Mixing and patience were worth {patience[5]:.1f} points to the student alone at 5, {patience[20]:.1f} at 20 "
        f"and {patience[160]:.1f} at 160",
        f"`mixed` has as many epochs as `small` and is ahead of it in all {len(mixing)} means, the student alone by "
        f"{min(alone):.1f} to {max(alone):.1f} points; `patient` is ahead of `mixed` by another {min(further):.1f} to "
        f"{max(further):.1f}.",
        f"nothing from 80 images on, and with 160 and the short recipe it lost {lost:.1f}.",
        f"the student alone is better by {min(longer):.1f} to {max(longer):.1f} points; from 10 images on",
        f"Students of teachers are better by {min(taught):.1f} to {max(taught):.1f} points with 5 and 10 images; with "
        f"more of them they lost {-min(more):.1f} points at most and gained up to {max(more):.1f}.",
    ]  # fmt: skip


def the_demonstration() -> list[str]:
    alone, letters = (100 * mean(some) for some in (DEMO[0]["alone"], DEMO[0]["students"]["letters"]))
    worth = {teacher: mean(gains_in_demo(teacher)) for teacher in DEMO[0]["students"]}
    known = [gain for teacher, gain in worth.items() if teacher not in IGNORANT]
    return [
        f"{alone:.1f} % alone, {letters:.1f} % with a teacher that has only ever seen letters (`preceptor demo`, three "
        "seeds, and each of them gained over 11 points",
        f"each of the five teachers that know characters was worth {min(known):.1f} to {max(known):.1f} points",
        f"its students are {worth['letters'] - worth['digits-0-4']:.1f} points behind.",
    ]  # fmt: skip


def seen_images() -> list[str]:
    def more(method: str, rows: list[dict[str, Any]] = LETTERS) -> str:
        found = by_newness(method, rows)
        assert len(found) == 6
        return with_error(found)

    def of_the_probe(rows: list[dict[str, Any]]) -> float:
        some = [row["accuracies"] for row in rows if (row["share"], row["way"]) == (0.6, "seen")]
        return 100 * mean(found["probe-kd"] - found["none"] for found in some)

    assert min(by_newness("probe-kd")) > 0
    probes = {(row["data"], row["overlap"]): row for row in lines_of("seen-probes")}
    seen, new = (probes[f"cifar100-{which}", 0.6] for which in ("first", "second"))

    def right(row: dict[str, Any]) -> tuple[str, str]:
        own, test = (f"{100 * row[split]['common_right']:.0f}" for split in ("train", "test"))
        return own, test

    (old, old_test), (fresh, fresh_test) = right(seen), right(new)

    return [
        f"`sinkhorn` gained {on_half('second', 'sinkhorn', 1.0)} points with new images and "
        f"{on_half('first', 'sinkhorn', 1.0)} with seen ones where the classes are the same, and "
        f"{on_half('second', 'sinkhorn', 0.6)} and {on_half('first', 'sinkhorn', 0.6)} with 60 % of them in common; "
        f"`sinkhorn+probe` {on_half('second', 'sinkhorn+probe', 1.0)} and {on_half('first', 'sinkhorn+probe', 1.0)}, "
        f"and {on_half('second', 'sinkhorn+probe', 0.6)} and {on_half('first', 'sinkhorn+probe', 0.6)}; `probe-kd` "
        f"{on_half('second', 'probe-kd', 1.0)} and {on_half('first', 'probe-kd', 1.0)}, and "
        f"{on_half('second', 'probe-kd', 0.6)} and {on_half('first', 'probe-kd', 0.6)}. With no common class, where "
        f"every image is new, they gained {on_half('second', 'sinkhorn', 0.0)}, "
        f"{on_half('second', 'sinkhorn+probe', 0.0)} and {on_half('second', 'probe-kd', 0.0)}.",
        f"a probe that was fitted on seen images knows {old} % of those images and {old_test} % of the test images of "
        f"the common classes, one fitted on new images {fresh} and {fresh_test} %.",
        f"`probe-kd` gained {more('probe-kd')} points more, in each of six draws, `sinkhorn+probe` "
        f"{more('sinkhorn+probe')} and `sinkhorn` {more('sinkhorn')}.",
        f"new images are now worth {more('probe-kd', MIXED)} points more than seen ones to `probe-kd`, "
        f"{more('sinkhorn+probe', MIXED)} to `sinkhorn+probe` and {more('sinkhorn', MIXED)} to `sinkhorn`",
        f"at 60 % `probe-kd` gains {of_the_probe(MIXED):.1f} points with seen images where it had gained "
        f"{of_the_probe(LETTERS):.1f}.",
    ]


def mixed_images() -> list[str]:
    """Of CIFAR-100, all images."""
    alone = [alone_by_mixing(overlap) for overlap in EVERY]
    more = [gains("sinkhorn", None, overlap, rows=MIXED_EARLY) for overlap in EVERY]
    assert {len(found) for found in (*alone, *more)} == {3}
    whole = {
        name: mean(gain for found in some for gain in found)
        for name, some in (("alone", alone), ("more", more))
    }
    plain = mean(mean(gains("sinkhorn", None, overlap, rows=AS_TODAY)) for overlap in EVERY)
    return [
        f"It gave the student alone {whole['alone']:.1f} points in the mean, as much as `sinkhorn` does without mixing "
        f"({plain:.1f}). On top of that `sinkhorn` gained {whole['more']:.1f} in the mean: together "
        f"{whole['alone'] + whole['more']:.1f}.",
    ]


def in_the_paper(overlap: float, data: str = "cifar100") -> float:
    """Points that `sinkhorn` gained there, the smallest student."""
    return fig05.paper_gains(data, fig05.PAPER_ORDER[data][-1])[overlap]


def over_alone(method: str, table: dict[str, Any], setting: str) -> str:
    """Points on the small digits over the student alone of the same recipe."""
    taught, alone = (table[name][setting] for name in (method, "none"))
    return with_error([100 * (one - other) for one, other in zip(taught, alone, strict=True)])


def when_it_helps() -> list[str]:
    mixed = mean(ON_MIXED["none"]["other classes"])
    taught = [mean(values) for table in (DIGITS, PATIENT, ON_MIXED) for method, cells in table.items()
              if method != "none" and not isinstance(values := cells["other classes"], str)]  # fmt: skip
    assert mixed > max(taught)
    (larger,) = (row for row in lines_of("teachers") if (row["arch"], row["task"]) == ("wrn-16-2", 0))
    return [
        f"the student alone reached {at_each_overlap('none')} by the ordinary recipe. By that `sinkhorn` gained "
        f"{gained(25, 'sinkhorn', 1.0)} points with the same classes, `sinkhorn+probe` "
        f"{gained(25, 'sinkhorn+probe', 0.6)} with 60 % of them, `probe-kd` {gained(25, 'probe-kd', 0.0)} with none.",
        f"{reached('finetune', 1.0)}, {reached('finetune', 0.6)} and {reached('finetune', 0.0)} % with 100, 60 and 0 % "
        f"common classes, where the best students from teachers reached {best_students()}",
        f"with other classes, and `sinkhorn` lost {lost_on_digits()} points, in each of ten seeds",
        f"By `--recipe patient` it gained {over_alone('sinkhorn', PATIENT, 'other classes')}, `sinkhorn+probe` "
        f"{over_alone('sinkhorn+probe', PATIENT, 'other classes')} and `probe-kd` "
        f"{over_alone('probe-kd', PATIENT, 'other classes')} over a student alone of "
        f"{percent(PATIENT, 'none', 'other classes')} %.",
        f"by `--recipe mixed` the student alone reached {100 * mixed:.1f} %, more than any of these",
        f"With the same classes they did: `sinkhorn+probe` {over_alone('sinkhorn+probe', ON_MIXED, 'same classes')} "
        f"points, `kd` {over_alone('kd', ON_MIXED, 'same classes')}.",
        f"A WRN-16-2 alone reached {100 * larger['accuracy']:.1f} % (one seed) where the WRN-16-1 has "
        f"{100 * mean(plain_students(1.0)):.1f} %.",
        f"(at 20 and 0 % the one that was run gained {of(1, 'paper', None, 0.2)} and {of(1, 'paper', None, 0.0)})",
    ]  # fmt: skip


def photographs() -> list[str]:
    shares = by_share()
    worth = [gain for found in shares.values() for gain in found]
    means = [f"{mean(shares[share]):.1f}" for share in (1.0, 0.75, 0.5, 0.25, 0.0)]
    paper = [in_the_paper(share, "cub200") for share in shares]
    assert max(paper) == max(in_the_paper(share, "cub200") for share in (0.25, 0.0))
    domains = ("birds", "cars", "dogs", "flowers", "fruits")
    own = [f"{of_domains(domain, domain):.1f}" for domain in domains]
    foreign = [of_domains(teacher, task) for teacher in domains for task in domains if teacher != task]
    dogs = lines_of("tab10")
    alone = mean(row["accuracy"] for row in dogs if row["variant"] == "none")

    def of_dogs(method: str) -> str:
        found = gains(method, rows=dogs)
        assert len(found) == 3
        return with_error(found)

    return [
        f"{sum(gain > 0 for gain in worth)} of {len(worth)} students gained, {', '.join(means[:-1])} and {means[-1]} "
        "points in the mean with 100, 75, 50, 25 and 0 % common classes. The paper has "
        f"{min(paper):.1f} to {max(paper):.1f}, most with few common classes, which was not seen here.",
        f"The teacher of the own domain was worth {', '.join(own[:-1])} and {own[-1]} points on "
        f"{', '.join(domains[:-1])} and {domains[-1]}",
        f"those of other domains {min(foreign):.1f} to {max(foreign):.1f}, {mean(foreign):.1f} in the mean",
        f"({100 * alone:.1f} % alone, three seeds): `refilled` gained {of_dogs('refilled')} points, `probe-kd` "
        f"{of_dogs('probe-kd')}, `sinkhorn+probe` {of_dogs('sinkhorn+probe')}, `sinkhorn` {of_dogs('sinkhorn')}",
    ]  # fmt: skip


ZOO = json.loads((ROOT / "results/benchmarks/assessment.json").read_text(encoding="utf-8"))  # of characters


def lost(metric: str, way: str = "sinkhorn") -> float:
    """Points between the best teacher of characters and the metric's first, mean over tasks."""
    truth, scores = ZOO["accuracies"][way], ZOO["scores"][metric]
    places = {task: max(range(13), key=found.__getitem__) for task, found in scores.items()}
    if metric == "sinkhorn":
        assert {ZOO["teachers"][place] for place in places.values()} == {"letters-one-epoch"}
    return mean(100 * (max(truth[task]) - truth[task][place]) for task, place in places.items())


def blind(by_task: Iterable[list[float]]) -> float:
    """The same for a teacher drawn blindly, from what students of each reached."""
    return mean(100 * (max(found) - mean(found)) for found in by_task)


def assessed(data: str, per_class: int | None) -> list[dict[str, Any]]:
    return fig07.merged(Book().rows(fig07.SCORES, data=data, per_class=per_class))


def students(rows: list[dict[str, Any]]) -> list[list[float]]:
    """Accuracies, task by task."""
    return [
        [row["accuracy"] for row in rows if row["task"] == task] for task in {row["task"] for row in rows}
    ]


def the_ranking() -> list[str]:
    rows, birds = assessed("cifar100", 25), assessed("cub200", None)
    patient = "sinkhorn+probe"
    first, second, *rivals = (
        fig07.quality(rows, metric)["regret"] for metric in ("bridge", "sinkhorn", "leep", "nce")
    )
    assert {f"{rival:.2f}" for rival in rivals} == {f"{first:.2f}"}
    on_birds = {f"{fig07.quality(birds, name)['regret']:.1f}" for name in ("bridge", "leep", "sinkhorn")}
    assert len(on_birds) == 1
    assert (len(rows), len(birds), len(ZOO["accuracies"]["sinkhorn"])) == (72, 50, 5)
    drawn = {way: blind(found.values()) for way, found in ZOO["accuracies"].items()}
    return [
        f"`bridge`, lost {lost('bridge'):.2f} points on average against the best of thirteen teachers of characters, "
        f"where a blind choice loses {drawn['sinkhorn']:.1f} and the paper's own metric {lost('sinkhorn'):.1f}; for "
        f"students of `sinkhorn+probe` on images mixed to the end {lost('bridge', patient):.1f}, "
        f"{drawn[patient]:.1f} and {lost('sinkhorn', patient):.1f}",
        f"on which it was found it lost {first:.2f}, as LEEP and NCE did, where a blind choice loses "
        f"{blind(students(rows)):.1f} and the paper's metric {second:.1f}.",
        f"Among the ten teachers of birds (all images, one training) it lost {on_birds.pop()}, as LEEP and the paper's "
        f"metric did, and a blind choice {blind(students(birds)):.1f}:",
    ]  # fmt: skip


def in_short() -> list[str]:
    """The table at the top of docs/when-it-helps.md, in whole points."""

    def span(found: list[float]) -> str:
        return f"{min(found):.0f} to {max(found):.0f}"

    def on_images(
        methods: tuple[str, ...], half: str, halves: tuple[float, ...], whole: Sequence[float]
    ) -> str:
        """With 250 images at some overlaps and with 500 at others."""
        rows = [row for row in HALVES if row["data"] == f"cifar100-{half}"]
        found = [(rows, share) for share in halves] + [(AS_TODAY, share) for share in whole]
        return span(
            [mean(gains(method, None, share, rows=some)) for method in methods for some, share in found]
        )

    few = [mean(over_the_best("sinkhorn+probe", 25, overlap)) for overlap in (1.0, 0.6, 0.0)]
    few += [
        mean(over_the_best("sinkhorn+probe", 10, overlap, EVERY_BIRDS_FEW, "patient"))
        for overlap in (1.0, 0.5, 0.0)
    ]
    unseen = on_images(("sinkhorn", "sinkhorn+probe"), "second", (1.0, 0.6, 0.0), OTHERS[-1:])
    known = on_images(("sinkhorn",), "first", (1.0, 0.6), (1.0, *OTHERS[:-1]))
    by_mixing, on_top = (
        [mean(found(overlap)) for overlap in EVERY]
        for found in (alone_by_mixing, lambda overlap: gains("sinkhorn", None, overlap, rows=MIXED_EARLY))
    )
    better = [
        float(reached("finetune", overlap)) - float(reached(method, overlap, RUN_FEW))
        for method, overlap in BEST_STUDENTS
    ]
    rows, birds = assessed("cifar100", 25), assessed("cub200", None)
    first = [lost("bridge"), *(fig07.quality(some, "bridge")["regret"] for some in (rows, birds))]
    drawn = [
        blind(found) for found in (ZOO["accuracies"]["sinkhorn"].values(), students(rows), students(birds))
    ]
    probed, refilled = (
        mean(gains(method, rows=lines_of("tab10"))) for method in ("sinkhorn+probe", "refilled")
    )
    return [
        f"| {span(few)} on CIFAR-100 and birds,",
        f"| {unseen} on CIFAR-100, more the more classes it shares",
        f"| {known} on CIFAR-100 without mixing; mixing alone {span(by_mixing)}, the teacher {span(on_top)} on top |",
        f"| {span(better)} more than the best student, 25 images a class |",
        f"by `sinkhorn+probe` {probed:.0f}, by `refilled` {refilled:.0f} |",
        f"| the first place loses {span(first)} against the best, a blind choice {span(drawn)} |",
    ]  # fmt: skip


def the_metrics() -> list[str]:
    """Of docs/metrics.md: how metrics did on CIFAR-100 and on birds."""
    few, birds = assessed("cifar100", 25), assessed("cub200", None)
    paper, ours, rival = (fig07.quality(few, name) for name in ("sinkhorn", "bridge", "leep"))
    assert abs(ours["pearson"] - rival["pearson"]) < 0.01
    first, second = fig07.within(few, "sinkhorn").values()
    names = ("bridge", "leep", "sinkhorn")
    one, two, three = (f"{fig07.quality(birds, name)['pearson']:.2f}" for name in names)
    lines = fig07.settings(Book().scale_of(fig07.NAME, data="cub200"), "cub200", None)
    told = fig07_repeats.section(Book(), lines, birds, names)
    again = re.search(r"([\d.]+) in the mean\. By", told).group(1)
    both = [re.search(rf"`{name}` ([\d.]+)", told).group(1) for name in names]
    return [
        f"students of 25 images a class was {paper['pearson']:.2f}, with {paper['regret']:.1f} points lost at the "
        f"first place; among teachers of one architecture {first:.2f} and {second:.2f}.",
        f"found on these very teachers ({ours['pearson']:.2f}, level with LEEP)",
        f"`bridge` has {one}, LEEP {two} and `sinkhorn` {three}: level; two trainings of the same students agree by no "
        f"more than {again}. Against the mean of two trainings they have {both[0]}, {both[1]} and "
        f"{both[2]}.",
    ]


def limits() -> list[str]:
    return [
        f"gained {100 * (mean(CHARACTERS['`sinkhorn`']) - mean(CHARACTERS['`none`'])):.1f} points on rendered",
        f"lost {lost_on_digits()} on small handwritten digits",
        f"By `--recipe patient` it gained {over_alone('sinkhorn', PATIENT, 'other classes')} on the digits",
        f"{gained(None, 'sinkhorn', 0.8)} points at 80 %, {gained(None, 'sinkhorn', 0.6)} at 60 %, "
        f"{gained(None, 'sinkhorn', 0.4)} at 40 %, {gained(None, 'sinkhorn', 0.2)} at 20 % and "
        f"{gained(None, 'sinkhorn', 0.0)} with none. The paper has {min(map(in_the_paper, OTHERS[:-1])):.1f} to "
        f"{max(map(in_the_paper, OTHERS[:-1])):.1f} down to 20 %. Its own settings gained "
        f"{of(7, 'paper', None, OTHERS[:-1])} there in the search",
        f"{reached('finetune', 1.0)}, {reached('finetune', 0.6)} and {reached('finetune', 0.0)} % where the best "
        f"student from a teacher reached {best_students()}",
    ]  # fmt: skip


BEST_STUDENTS = (("sinkhorn", 1.0), ("sinkhorn+probe", 0.6), ("probe-kd", 0.0))  # of 25 images a class


def best_students() -> str:
    first, second, third = (reached(method, overlap, RUN_FEW) for method, overlap in BEST_STUDENTS)
    return f"{first}, {second} and {third} %"
