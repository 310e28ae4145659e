"""What a run says about its ranking and its students, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from preceptor.core import Ranking
from preceptor.data import Task
from preceptor.pipeline.kept import Kept
from preceptor.pipeline.trials import Trial
from preceptor.rank.reference import untrained_score
from preceptor.wording import counted
from preceptor.zoo import Zoo

MARGIN = 0.02  # of the score by chance: so far above it a useless teacher may come


def ranked_sentence(ranking: Ranking, leaders: Sequence[str]) -> str:
    """How many were ranked, by what, who came first, and why others have no rank."""
    failed = [row for row in ranking.rows if row.rank is None]
    ranked = counted(len(ranking.rows) - len(failed), "teacher")
    said = f"ranked {ranked} by {ranking.metric}; first: {', '.join(leaders)}"
    if not failed:
        return said
    reason = f"{failed[0].name}: {', '.join(failed[0].reasons.values())}"
    more = f"; and {counted(len(failed) - 1, 'other')}" if failed[1:] else ""
    return f"{said}; could not be assessed: {reason}{more}"


def no_better_than_nothing(
    zoo: Zoo, task: Task, ranking: Ranking, leaders: Sequence[str], device: str, trust_code: bool
) -> list[str]:
    """Say so where the best teacher knows no more about the task than chance, or the same network untrained."""
    score = ranking[leaders[0]].scores[ranking.metric]
    if ranking.metric == "bridge":
        chance = -math.log(len(task.classes))
        worse, than = score <= (1 - MARGIN) * chance, f"than chance ({chance:.3f})"
        hardly = "hardly" if score > chance else "no"
    elif ranking.metric == "sinkhorn":
        teacher = zoo.load(leaders[0], trust_code=trust_code)
        reference = untrained_score(teacher, task, device=device)
        worse = reference is not None and score <= reference
        than, hardly = f"than the same network untrained ({reference:.3f})" if worse else "", "no"
    else:
        return []
    if not worse:
        return []
    return [
        f"{leaders[0]} scores {score:.3f}, {hardly} better {than}: nothing in this zoo looks useful for this task"
    ]


def better_alone(plain: Sequence[Trial], recipe: Any, other: str | None) -> list[str]:
    """Say so where the plain student was better by the other recipe than by the one of the students of teachers."""
    if other is None:
        return []
    *some, found = (100 * one.validation_accuracy for one in plain)
    asked = max(some)
    if found <= asked:
        return []
    return [
        f"without a teacher the {other} recipe is better ({found:.1f} % on validation data, the {recipe} one "
        f"{asked:.1f} %), so that is what teachers are held against"
    ]


def still_to_come(plain: Sequence[Trial], taught: int, refit: bool) -> str:
    """How long the students without a teacher took, and how many trainings follow, so that one can go for lunch."""
    seconds = sum(trial.result.seconds for trial in plain)
    took = f"{seconds:.0f} seconds" if seconds < 90 else counted(round(seconds / 60), "minute")
    last = ", and one or two on all labels" if refit else ""
    verb = "is" if taught == 1 else "are"
    return f"that took {took}; {counted(taught, 'training')} with a teacher {verb} to come{last}"


def outcome(kept: Kept, trials: Sequence[Trial], refit: bool) -> list[str]:
    """Which student is kept, and what it gained over the plain one, the first of `trials`.

    Args:
        kept: The best of the trials.
        trials: All of them.
        refit: Whether both were trained once more on all labels.
    """
    plain = trials[0]
    best = max(trials[1:], key=lambda trial: trial.validation_accuracy)
    gap = 100 * (best.validation_accuracy - plain.validation_accuracy)
    ours, alone = 100 * kept.found.accuracy, 100 * kept.plain.accuracy
    if kept.trial.teacher is None:
        again = "trained once more on all labels it" if refit else "it"
        helped, ends = ("was better", "level with") if gap == 0 else ("helped", f"{-gap:.1f} points below")
        return [
            f"no teacher {helped}: on validation data the best of them ({_named(best, trials)}) ends {ends} the plain "
            f"student, which is kept; {again} reaches {alone:.1f} % on the test split"
        ]
    again = "both trained once more on all labels, " if refit else ""
    sentences = [
        f"kept the student of {_named(kept.trial, trials)}: {gap:+.1f} points on validation data against the plain "
        f"student; {again}on the test split {ours:.1f} % against {alone:.1f} %, one seed each"
    ]
    if ours < alone:
        sentences.append(
            f"on the test split the plain student is {alone - ours:.1f} points better; validation data did not show it"
        )
    return sentences


def _named(trial: Trial, trials: Sequence[Trial]) -> str:
    """The teacher, and the method where several were tried."""
    several = len({one.method for one in trials if one.teacher is not None}) > 1
    return f"{trial.teacher} by {trial.method}" if several else str(trial.teacher)
