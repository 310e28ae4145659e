"""The bars that the evidence has to clear, judged from the rows alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import t as student

from experiments.book import NOT_RUN, SEEDS, Book, Sample, chooser
from experiments.items import few, fig05, fig07, seen, tab08, tab09
from experiments.jobs import Job
from experiments.schedule import MIXED_EARLY, PATIENT, PLAIN

Gains = dict[float, Sample]  # by the share of common classes
Training = tuple[str, str]  # method, recipe
REACHED, MISSED, UNKNOWN = "reached", "not reached", "not measured"


@dataclass(frozen=True)
class Bar:
    """A claim and what the rows say about it."""

    claim: str
    verdict: str
    detail: str


def judge(checks: list[bool | None]) -> str:
    """Missed by one check that fails; unknown as long as one cannot be made."""
    if any(check is False for check in checks):
        return MISSED
    return UNKNOWN if not checks or any(check is None for check in checks) else REACHED


def at_least(value: float, limit: float) -> bool | None:
    """None where the value is not known."""
    return None if math.isnan(value) else value >= limit


def gains_by_overlap(
    book: Book, one: Training = ("sinkhorn", PLAIN), other: Training = ("none", PLAIN)
) -> Gains:
    """What one way to train had over the other in Fig. 5, WRN-16-1."""
    scale, kind = book.scale_of(fig05.NAME), book.scale.kind("cifar100")
    gains = {}
    for task in range(kind.tasks):
        choose = chooser([
            job for seed in scale.seeds
            for job in (*fig05.setting(scale, "cifar100", "wrn-16-1", task, seed), *fig05.mixed(scale, task, seed))
        ])  # fmt: skip
        sides = (choose(name=fig05.named(*side)) for side in (one, other))
        gains[round(kind.overlap(0, task), 6)] = book.gains(*sides)
    return gains


def _at_every_overlap(gains: Gains) -> list[bool | None]:
    """Above two standard errors down to 40 %, and no loss below."""
    checks: list[bool | None] = []
    for share, gain in gains.items():
        if len(gain.values) < SEEDS:
            checks.append(None)
        elif share >= 0.4:
            checks.append(gain.mean > 2 * gain.error)
        else:
            checks.append(gain.mean >= 0)
    return checks


def overlaps(book: Book) -> list[Bar]:
    """Fig. 5, WRN-16-1: a gain at every overlap, and on average the paper's."""
    gains = gains_by_overlap(book)
    checks = _at_every_overlap(gains)
    shown = _listed(gains)
    mean, paper = mean_gain(gains.values()), _paper_mean()
    claim = "`sinkhorn` above `none` (WRN-16-1) by over two standard errors at 100 to 40 %, not below at 20 and 0 %"
    return [
        Bar(claim, judge(checks), f"gain in points ± standard error (seeds): {shown or '–'}; so few seeds are a weak "
            f"test: {_told_from_chance(gains)}"),
        Bar(f"its mean gain over the six overlaps at least the paper's {paper:+.1f}",
            judge([None if any(check is None for check in checks) else at_least(mean, paper)]),
            "–" if math.isnan(mean) else f"{mean:+.2f} points"),
    ]  # fmt: skip


def mixed_images(book: Book) -> list[Bar]:
    """Asked when images new to the teacher were worth more: mixed ones are new, too, but better for anybody."""
    none, taught = ("none", MIXED_EARLY), ("sinkhorn", MIXED_EARLY)
    gains, alone = gains_by_overlap(book, taught, none), gains_by_overlap(book, none)
    whole = all(len(gain.values) >= SEEDS for gain in (*gains.values(), *alone.values()))
    mean, paper = mean_gain(gains.values()), _paper_mean()
    shown = (
        f"{_listed(gains)}; mean {mean:+.2f}; {_told_from_chance(gains)}; the student alone is better than by "
        f"the paper's training by {_listed(alone)}; mean {mean_gain(alone.values()):+.2f}"
    )
    return [
        Bar("with images mixed up in the first half of the epochs `sinkhorn` above `none` trained in the same way: "
            f"both bars above, {paper:+.1f} in the mean included",
            judge([*_at_every_overlap(gains), at_least(mean, paper) if whole else None]), shown if whole else "–"),
    ]  # fmt: skip


def new_images(book: Book) -> list[Bar]:
    """Asked when Fig. 5 had its low at 60 %: the same where the teacher has not seen the student's images."""
    choose = chooser(seen.jobs(book.scale_of(seen.NAME)))
    kind = book.scale.kind(seen.UNSEEN)
    gains, known = (
        {
            round(kind.overlap(0, task), 6): seen.gain(book, choose, data, task, "sinkhorn")
            for task in seen.FIRST
        }
        for data in (seen.UNSEEN, seen.SEEN)
    )
    more = {
        share: Sample(tuple(new - old for new, old in zip(gains[share].values, found.values, strict=True)))
        for share, found in known.items()
        if len(found.values) == len(gains[share].values) == SEEDS  # so that values are of the same seeds
    }
    paper = _paper_mean()
    whole = all(len(gain.values) >= SEEDS for gain in gains.values())
    checks = [gain.mean > 2 * gain.error if len(gain.values) >= SEEDS else None for gain in gains.values()]
    mean = f"; mean {mean_gain(gains.values()):+.2f}" if whole else ""
    return [
        Bar("with images that are new to the teacher (250 a class, half of Fig. 5's) `sinkhorn` above `none` by over "
            f"two standard errors at 100, 60 and 0 %, and in the mean at least {paper:+.1f}",
            judge([*checks, at_least(mean_gain(gains.values()), paper) if whole else None]),
            f"{_listed(gains) or '–'}{mean}; {_told_from_chance(gains)}; with as many that it has seen "
            f"{_listed(known) or '–'}; new less seen {_listed(more) or '–'}"),
    ]  # fmt: skip


def _told_from_chance(gains: Mapping[float, Sample]) -> str:
    sure = ", ".join(f"{share:.0%}" for share, gain in gains.items() if is_sure(gain)) or "none"
    return f"by Student's t a gain can be told from chance (5 %) at {sure}"


def _listed(gains: Mapping[float, Sample]) -> str:
    """Gains in points by the share of common classes, those that are known."""
    known = {share: gain for share, gain in gains.items() if gain.values}
    return ", ".join(f"{share:.0%}: {_counted(gain)}" for share, gain in known.items())


def _counted(gain: Sample) -> str:
    """With its standard error and the number of seeds."""
    return f"{gain.gain()} ({len(gain.values)})" if gain.values else NOT_RUN


def mean_gain(gains: Collection[Sample]) -> float:
    """Over overlaps, in points."""
    return 100 * sum(gain.mean for gain in gains) / len(gains)


def _paper_mean() -> float:
    """What the paper's smallest students of CIFAR-100 gained, over its overlaps."""
    return fmean(fig05.paper_gains("cifar100", "wrn-16-1").values())


def is_sure(gain: Sample) -> bool:
    """Whether Student's t tells the mean from nothing at 5 %."""
    count = len(gain.values)
    return count > 1 and bool(gain.mean > gain.error * student.ppf(0.975, count - 1))


def few_labels(book: Book) -> list[Bar]:
    """At 25 images a class, with the plain recipe, with images mixed all the time and as `preceptor run` does it."""
    return [bar for kind in (PLAIN, PATIENT, few.RUN) for bar in _few_labels(book, kind)]


def ways_alone(
    book: Book, data: str, count: int, task: int, kinds: Collection[str] = few.KINDS
) -> list[list[Job]]:
    """The student alone, trained in each of these ways that has been run with two seeds or more."""
    scale = book.scale_of(few.NAME)
    ways = [
        chooser(
            [job for seed in scale.seeds for job in few.setting(scale, data, count, task, seed, 0, kind)]
        )(name="none")
        for kind in kinds
    ]
    return [jobs for jobs in ways if len(book.accuracy(jobs).values) > 1]


def best_alone(book: Book, data: str, count: int, task: int, kinds: Collection[str] = few.KINDS) -> list[Job]:
    """The best of these on the seeds that all have: a teacher must not gain by what does harm without one."""
    ways = ways_alone(book, data, count, task, kinds)
    if not ways:
        return []
    shared = set.intersection(*({job.seed for job in jobs if book.accuracy([job]).values} for jobs in ways))
    return max(ways, key=lambda jobs: book.accuracy(job for job in jobs if job.seed in shared).mean)


def _few_labels(book: Book, kind: str) -> list[Bar]:
    scale = book.scale_of(few.NAME)
    checks: list[bool | None] = []
    level: list[bool | None] = []
    told, rival = [], []
    for task in few.TASKS["cifar100"]:
        choose = chooser(
            [job for seed in scale.seeds for job in few.setting(scale, "cifar100", 25, task, seed, 0, kind)]
        )
        kinds = (PLAIN,) if kind == PLAIN else few.KINDS
        base = best_alone(book, "cifar100", 25, task, kinds)
        all_ways = len(ways_alone(book, "cifar100", 25, task, kinds)) == len(kinds)
        ours, theirs = (
            [choose(name=name) for name in names]
            for names in (("sinkhorn", "sinkhorn+probe"), ("rkd", fig05.GENTLE_RKD, "refilled"))
        )
        mine, best = best_of(book, ours, base)
        enough = len(best.values) >= SEEDS and all_ways
        checks.append(at_least(best.mean, 0.05) if enough else None)
        # Rivals may have fewer seeds: each is held against ours on those that both have.
        leads = [book.gains(mine, jobs).mean for jobs in theirs]
        level.append(None if not enough or any(map(math.isnan, leads)) else min(leads) >= 0)
        share = f"{fig05.overlap_of(scale, 'cifar100', task):.0%}"
        told.append(f"{share}: {_counted(best)}")
        other, gain = best_of(book, theirs, base)
        rival.append(f"{share}: {_counted(gain)}, ours ahead by {_counted(book.gains(mine, other))}")
    where, alone = "with 25 images a class", "`none`"
    if kind != PLAIN:
        where, alone = f"{where}, {few.TOLD[kind]},", "the best student alone of the three ways to mix"
    return [
        Bar(f"{where} `sinkhorn` or `sinkhorn+probe` at least 5 points above {alone} at 100, 60 and 0 %",
            judge(checks), "best of ours, gain in points ± standard error (seeds): " + ", ".join(told)),
        Bar("and at least level with `rkd` (all or a fifth of its weights) and `refilled`", judge(level),
            "best of those, and how far ours is ahead on the same seeds: " + "; ".join(rival)),
    ]  # fmt: skip


def best_of(book: Book, some: list[list[Job]], base: list[Job]) -> tuple[list[Job], Sample]:
    """The jobs with the largest mean gain, and it; those without values are never larger."""
    gains = [(jobs, book.gains(jobs, base)) for jobs in some]
    return max(gains, key=lambda pair: -math.inf if math.isnan(pair[1].mean) else pair[1].mean)


def assessment(book: Book) -> list[Bar]:
    """Tab. 11 on CIFAR-100, for the paper's metric and for the one that decides by default."""
    few = fig07.FEW["cifar100"]
    rows = book.rows(fig07.SCORES, data="cifar100", per_class=None)
    where = ""
    if not rows and (rows := book.rows(fig07.SCORES, data="cifar100", per_class=few)):
        where = f"students of {few} images a class: "
    rows, rivals = fig07.merged(rows), ("logme", "leep", "nce")
    known = [name for name in ("sinkhorn", "bridge", *rivals) if rows and name in rows[0]["scores"]]
    found = {name: fig07.quality(rows, name) for name in known}

    def of(name: str, measure: str) -> float:
        return found.get(name, {}).get(measure, math.nan)

    shown = where + (", ".join(f"{name} {of(name, 'pearson'):.3f}" for name in found) or "–")
    bars = []
    for metric, words in (
        ("sinkhorn", "the paper's metric, `sinkhorn`,"),
        ("bridge", "our metric `bridge`, which was found on these very rows,"),
    ):
        ours, regret = of(metric, "pearson"), of(metric, "regret")
        above = [
            None if math.isnan(ours + of(rival, "pearson")) else ours > of(rival, "pearson")
            for rival in rivals
        ]
        claim = f"mean Pearson of {words} over the CIFAR-100 tasks at least 0.72"
        bars += [
            Bar(claim, judge([at_least(ours, 0.72)]), shown),
            Bar("and above LogME, LEEP and NCE", judge(above), where + _lead(found, metric, rivals)),
            Bar("its top-1 regret under one point", judge([None if math.isnan(regret) else regret < 1]),
                "–" if math.isnan(regret) else f"{where}{regret:.2f} points"),
        ]  # fmt: skip
    return bars


def _lead(found: dict[str, dict], metric: str, rivals: tuple[str, ...]) -> str:
    """How far a metric is ahead of the best rival, task by task."""
    known = [name for name in rivals if name in found]
    if metric not in found or not known:
        return "–"
    best = max(known, key=lambda name: found[name].get("pearson", -math.inf))
    mine, theirs = found[metric]["tasks"], found[best]["tasks"]
    gaps = Sample(tuple(mine[task] - theirs[task] for task in mine if task in theirs))
    return f"{metric} less {best}, mean over tasks ± standard error: {gaps.mean:+.4f} ± {gaps.error:.4f}"


def orders(book: Book) -> list[Bar]:
    """Tab. 9 and Tab. 8."""
    shares = [fig05.overlap_of(book.scale, "cifar100", task) for task in book.scale.tasks("cifar100")]
    pairs = [
        [tab09.average(book, network, share, "raw").mean for network in ("teacher", "random")]
        for share in shares
    ]
    nmi = [None if math.isnan(t) or math.isnan(r) else t >= 0.7 and t > r for t, r in pairs]
    low = [None if math.isnan(r) else r <= 0.6 for _, r in pairs]
    scale = book.scale_of(tab08.NAME)
    choose = chooser(tab08.jobs(scale))
    known = {
        cost: book.accuracy(choose(data="cifar100", student="wrn-16-1", name=cost)).mean
        for cost in tab08.COSTS
    }
    known["ours"] = book.accuracy(tab08.references(scale, "cifar100", "wrn-16-1")["ours"]).mean
    chain = [
        ("ours", "shallow"),
        ("shallow", "superclass"),
        ("superclass", "constant"),
        ("superclass", "random"),
    ]
    order = [None if math.isnan(known[a]) or math.isnan(known[b]) else known[a] > known[b] for a, b in chain]
    known_pairs = [
        (share, t, r) for share, (t, r) in zip(shares, pairs, strict=True) if not math.isnan(t + r)
    ]
    shown = ", ".join(f"{share:.0%}: {t:.2f} / {r:.2f}" for share, t, r in known_pairs) or "–"
    random = ", ".join(f"{share:.0%}: {r:.2f}" for share, _, r in known_pairs) or "–"
    costs = ", ".join(
        f"{cost} {NOT_RUN if math.isnan(value) else f'{100 * value:.2f}'}" for cost, value in known.items()
    )
    return [
        Bar("Tab. 9: NMI of the teacher's centres at least 0.7 and above a random network's at every overlap",
            judge(nmi), f"teacher / random: {shown}"),
        Bar("and well above it: the random network's about 0.55, as in the paper", judge(low), f"random: {random}"),
        Bar("Tab. 8: ours above shallow above superclass above the naive costs (WRN-16-1)", judge(order),
            "–" if all(map(math.isnan, known.values())) else costs),
    ]  # fmt: skip


def bars(book: Book) -> list[Bar]:
    """All of them."""
    return [
        *overlaps(book),
        *mixed_images(book),
        *new_images(book),
        *few_labels(book),
        *assessment(book),
        *orders(book),
    ]
