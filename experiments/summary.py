"""What the rows say, in a few sentences for readers who will not look at every table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from experiments.bars import best_alone, best_of, gains_by_overlap, is_sure, mean_gain, ways_alone
from experiments.book import Book, Sample, chooser, in_words
from experiments.items import few, fig05, fig07, fig10, seen
from experiments.items.fig07_paper import PEARSON
from experiments.schedule import MIXED_EARLY, PATIENT, PLAIN

HEAD = (
    "Gains are points over the same student without a teacher, on test images, means of two or three seeds."
)


def in_short(book: Book) -> str:
    """A list; sentences without rows are left out."""
    parts = (
        many_labels(book),
        mixed_images(book),
        new_images(book),
        few_labels(book),
        birds(book),
        choice(book),
        domains(book),
    )
    told = "\n".join(f"- {part}" for part in parts if part)
    return f"{HEAD}\n\n{told}" if told else ""


def many_labels(book: Book) -> str:
    """Fig. 5 as the paper has it."""
    gains = gains_by_overlap(book)
    if not _whole(gains.values()):
        return ""
    paper = fig05.paper_gains("cifar100", "wrn-16-1").values()
    return (
        f"**Many labels, in the paper's protocol** (CIFAR-100, 500 images a class, WRN-16-1): `sinkhorn` gained "
        f"{_range(gains.values())} points at the six overlaps of classes, {mean_gain(gains.values()):.1f} in the mean. "
        f"The paper has {min(paper):.1f} to {max(paper):.1f}, {fmean(paper):.1f} in the mean."
    )


def mixed_images(book: Book) -> str:
    """The same on a better training."""
    none, taught = ("none", MIXED_EARLY), ("sinkhorn", MIXED_EARLY)
    alone, more, both = (gains_by_overlap(book, one, other).values() for one, other in
                         ((none, ("none", PLAIN)), (taught, none), (taught, ("none", PLAIN))))  # fmt: skip
    if not _whole([*alone, *more]):
        return ""
    return (
        "**The same with images mixed up in the first half of the epochs**: the student alone was better by "
        f"{_range(alone)} points, "
        f"{mean_gain(alone):.1f} in the mean, "
        f"and `sinkhorn` gained {_range(more)} on top of that, {mean_gain(more):.1f} in the mean. Together that is "
        f"{mean_gain(both):.1f}."
    )


def new_images(book: Book) -> str:
    """The halves of CIFAR-100."""
    choose = chooser(seen.jobs(book.scale_of(seen.NAME)))
    same, part, none = seen.FIRST
    old, new = (
        [seen.gain(book, choose, data, task, "sinkhorn") for task in tasks]
        for data, tasks in ((seen.SEEN, (same, part)), (seen.UNSEEN, (same, part, none)))
    )
    if not _whole([*old, *new]):
        return ""
    return (
        "**In the paper's protocol the teacher has learnt from the student's very images**, which a user's teacher has "
        "not. With 250 "
        f"images a class that were new to it `sinkhorn` gained {_each(new)} points with all, 60 % and none of the "
        f"classes in common, with as many that it had seen {_each(old)} with all and 60 %."
    )


def few_labels(book: Book) -> str:
    """25 images a class, mixed as `preceptor run` does it, or else to the end, over the best student alone."""
    for kind in (few.RUN, PATIENT):
        ours, probe, rivals = (
            _with_few(book, "cifar100", 25, names, kind)
            for names in (("sinkhorn+probe",), ("probe-kd",), ("rkd", fig05.GENTLE_RKD, "refilled"))
        )
        if _whole([*ours, *probe]):
            break
    else:
        return ""
    against = (
        f", and the best of `rkd` (all or a fifth of its weights) and `refilled` {_each(rivals)}"
        if _whole(rivals)
        else ""
    )
    return (
        f"**Few labels**, 25 images a class, {few.TOLD[kind]}, three times the steps: `sinkhorn+probe` gained "
        f"{_each(ours)} points with 100, 60 and 0 % of the classes in common over the student alone, "
        f"{_trained(book, 'cifar100', 25)}; `probe-kd`, which has no transport, {_each(probe)}{against}."
    )


def birds(book: Book) -> str:
    """Ten images of each."""
    ours = _with_few(book, "cub200", 10, ("sinkhorn+probe",), PATIENT)
    if not _whole(ours):
        return ""
    return (
        f"**Photographs**, ten of each of 100 birds, {few.TOLD[PATIENT]}: {_each(ours)} points with 100, 50 and 0 % of "
        f"the classes in common over the student alone, {_trained(book, 'cub200', 10)}."
    )


def choice(book: Book) -> str:
    """Correlations of three metrics on both data sets."""
    found = []
    for data, per_class in (("cifar100", fig07.FEW["cifar100"]), ("cub200", None)):
        rows = fig07.merged(book.rows(fig07.SCORES, data=data, per_class=per_class))
        if not rows:
            return ""
        found.append([fig07.quality(rows, name)["pearson"] for name in ("sinkhorn", "logme", "bridge")])
    (paper, logme, bridge), (on_birds, logme_on_birds, bridge_on_birds) = found
    *_, said = PEARSON["sinkhorn"]
    return (
        f"**Choosing a teacher**: the paper's metric, which has a mean correlation of {said:.2f} with what students "
        f"reach in the paper (CUB), has {paper:.2f} on CIFAR-100 (students of 25 images a class), LogME {logme:.2f}, "
        f"and our `bridge`, which was made after a look at these rows, {bridge:.2f}. On CUB, all images, they have "
        f"{on_birds:.2f}, {logme_on_birds:.2f} and {bridge_on_birds:.2f}."
    )


def domains(book: Book) -> str:
    """Teachers of other domains than the student's."""
    scale = book.scale_of(fig10.NAME)
    choose = chooser(fig10.jobs(scale))
    gains = [
        book.gains([job for job in choose(data=task, name="sinkhorn") if job.teacher.data == teacher],
                   choose(data=task, name="none"))
        for task in scale.few(fig10.DOMAINS) for teacher in scale.few(fig10.DOMAINS) if teacher != task
    ]  # fmt: skip
    if not _whole(gains):
        return ""
    sure = sum(map(is_sure, gains))
    return (
        "**Another domain** (a teacher of birds for cars and the like): `sinkhorn` gained "
        f"{_range(gains)} points, {mean_gain(gains):.1f} in the mean; in {sure or 'none'} of {len(gains)} pairs a gain "
        "can be told from chance."
    )


def _trained(book: Book, data: str, count: int) -> str:
    """How the student alone was, over which gains are told."""
    ways = min(len(ways_alone(book, data, count, task)) for task in few.TASKS[data])
    return f"trained in the best of {ways} ways to mix" if ways > 1 else "trained in the same way"


def _with_few(book: Book, data: str, count: int, names: Sequence[str], kind: str) -> list[Sample]:
    """The best gain of the named methods at each overlap, over the student alone at its best."""
    scale = book.scale_of(few.NAME)
    found = []
    for task in scale.few(few.TASKS[data]):
        choose = chooser(
            [job for seed in scale.seeds for job in few.setting(scale, data, count, task, seed, 0, kind)]
        )
        base = best_alone(book, data, count, task)
        found.append(best_of(book, [choose(name=name) for name in names], base)[1])
    return found


def _whole(gains: Iterable[Sample]) -> bool:
    """Whether all have been run, with another seed at least."""
    return all(len(gain.values) > 1 for gain in gains)


def _range(gains: Iterable[Sample]) -> str:
    means = [100 * gain.mean for gain in gains]
    return f"{min(means):.1f} to {max(means):.1f}"


def _each(gains: Sequence[Sample]) -> str:
    return in_words(f"{100 * gain.mean:.1f}" for gain in gains)
