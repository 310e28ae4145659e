"""Alg. 1: rank the zoo, distil the best teacher, and give the student only if the teacher did not harm it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from preceptor.core import PreceptorError, Ranking
from preceptor.data import Split, Task
from preceptor.defaults import own_defaults
from preceptor.distill.claim import claimed
from preceptor.distill.devices import plain_seed, resolve_device
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.saved_run import score_run
from preceptor.files import local_path, write_atomically
from preceptor.metrics import DEFAULT_METRICS
from preceptor.pipeline.alone import PLAIN, in_which_ways, other_recipe
from preceptor.pipeline.kept import Kept, put_on_top
from preceptor.pipeline.plan import Plan
from preceptor.pipeline.result import PipelineResult
from preceptor.pipeline.trials import Attempt, Trial
from preceptor.pipeline.verdict import (
    better_alone,
    no_better_than_nothing,
    outcome,
    ranked_sentence,
    still_to_come,
)
from preceptor.rank.ranking import rank
from preceptor.rank.settings import choose_teachers
from preceptor.zoo import Zoo

__all__ = ["PipelineResult", "Trial", "run"]

VALIDATION = 0.2  # of the training set: decides between the teachers and the plain student
RANKING = "ranking.json"  # of rank; with it a run begins
NEVER = 10**9  # epochs between two looks at the test split


@own_defaults()
def run(
    zoo: Zoo | str | os.PathLike[str],
    task: Task | str | os.PathLike[str],
    *,
    student: str = "wrn-16-1",
    out: str | os.PathLike[str],
    method: str | Sequence[str] | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    top: int = 1,
    recipe: Any = None,
    validation: float = VALIDATION,
    refit: bool = True,
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    report: bool = True,
    trust_code: bool = False,
    rank_options: Mapping[str, Any] | None = None,
    unlabelled: Split | Task | str | os.PathLike[str] | None = None,
    notify: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> PipelineResult:
    """Rank the teachers of a zoo for a task and distil the best into a student (Alg. 1).

    A part of the training set is held out. The plain student and one student for each of the `top` teachers and each
    method are trained on the rest; the best on the held-out part is kept, at a draw the plain one. So a teacher that
    does not help is found out and left aside, and the result says so. The test split decides nothing: it is read once,
    at the end.

    Args:
        zoo: The teachers.
        task: The data.
        student: An architecture's name.
        out: Folder for the ranking, a run folder for each trial, the kept student and the report.
        method: How to distil: one method or several, of which validation data choose; by default `sinkhorn` and
            `sinkhorn+probe`, with options of a method the one that has most of them.
        metrics: Metrics of the ranking; the first decides.
        top: How many of the best teachers to try.
        recipe: How to train: a name of `RECIPES` or a `Recipe`; by default "patient" where there are fewer than 100
            training images a class and `options` say nothing of epochs, "mixed" otherwise, and "small" where they say
            `mixup`. The plain student is trained by "mixed" too beside "patient", by "small" beside "mixed", and the
            better counts: teachers must not gain by spoiling it. Without a recipe of yours and without `augment`, it
            also says whether students see random views of images in colour, or images as they are.
        validation: The share of each training class that is held out; of a class with a single sample, none.
        refit: Train the kept student and the plain one once more, on all labels, when the choice is made. With
            patience they then train for as many epochs as their best weights had, without stopping early.
        seed: Decides the held-out part, weights, data order and augmentation.
        device: "auto", "cpu", "cuda", …
        resume: Go on with an interrupted run in `out`.
        report: Write ``report.html``.
        trust_code: Let teachers that came from ``python:`` sources run their code.
        rank_options: Further arguments of `rank`.
        unlabelled: Further samples for the students of teachers, as in `train`.
        notify: Told what happens, sentence by sentence.
        **options: Settings of the recipe and options of the method.
    """
    if top < 1:
        raise PreceptorError(f"top {top} came; at least 1 teacher has to be tried")
    seed = plain_seed(seed)
    zoo = zoo if isinstance(zoo, Zoo) else Zoo(os.fspath(zoo))
    task = task if isinstance(task, Task) else Task(task)
    # All that can be known to be wrong is told before the ranking, not after it.
    plan = Plan.of(
        task, method=method, recipe=recipe, validation=validation, refit=refit, unlabelled=unlabelled, options=options,
        shared={"student": student, "seed": seed, "device": device, "resume": resume},
    )  # fmt: skip
    asked = {"device": str(resolve_device(device)), "trust_code": trust_code, **(rank_options or {})}
    plan.check_zoo(zoo, choose_teachers(zoo, asked.get("teachers")))
    folder = local_path(out)
    with claimed(folder, RANKING):
        _check_free(folder, resume)
        _check_zoo(folder, zoo)
        _said(notify, plan.told)

        ranking, leaders = _begin_by_ranking(zoo, plan, metrics, asked, top, folder)  # Alg. 1, line 1
        verdict = _said(notify, [ranked_sentence(ranking, leaders)])
        verdict += _said(
            notify, no_better_than_nothing(zoo, task, ranking, leaders, asked["device"], trust_code)
        )

        plan, alone, said = _train_alone(plan, folder, notify)
        verdict += said + _said(
            notify, better_alone(alone, plan.later_recipe, other_recipe(plan.recipe, plan.options))
        )
        attempts = plan.taught(zoo, leaders, trust_code)  # line 2
        notify(still_to_come(alone, len(attempts), plan.refit))
        trials = (_best(alone), *_distil(attempts, plan, folder, notify))  # line 3

        kept = _keep_one(trials, attempts, ranking, plan, folder, notify)
        verdict += _said(notify, outcome(kept, trials, plan.refit))
        result = PipelineResult(
            model=kept.last.result.model, teacher=kept.trial.teacher, method=kept.trial.method, ranking=ranking,
            trials=trials, verdict=tuple(verdict), path=folder, **kept.on_test_split(task.classes),
            config={"zoo": zoo.url, "top": top, "validation": validation, **plan.to_json(),
                    "plain": {one.path.name: one.validation_accuracy for one in alone}},
        )  # fmt: skip
        put_on_top(folder, kept, task)
        _tell(result, task, report)
        return result


def _check_free(folder: Path, resume: bool) -> None:
    """Refuse a folder in which a new run would replace what is there."""
    from preceptor.report.story import DEMO

    begun, piped = (folder / RANKING).exists(), (folder / PLAIN).exists()
    if RunFolder(folder).exists and not piped:  # a ranking may have been put beside it
        raise PreceptorError(f"{folder} already holds a run of train or distill; choose another folder")
    if (folder / DEMO).exists():
        raise PreceptorError(f"{folder} already holds the demonstration; choose another folder")
    if not begun or resume:
        return
    if piped:
        raise PreceptorError(
            f"{folder} already holds a run; pass resume=True (--resume) to continue it or choose another folder"
        )
    raise PreceptorError(
        f"{folder} already holds a ranking, which a run replaces at its end; pass resume=True (--resume) to let it, "
        "or choose another folder"
    )


def _check_zoo(folder: Path, zoo: Zoo) -> None:
    """Refuse another zoo than the one whose teachers have students in the folder: ranking and students would differ."""
    for file in sorted(folder.glob("from-*/**/config.json")):
        taught_by = RunFolder(file.parent).read_config().get("teacher") or {}
        if "from" not in taught_by:  # it learnt from another student
            continue
        name = taught_by["name"]
        if name not in zoo or zoo.card(name).weights_hash != taught_by["sha256"]:
            raise PreceptorError(
                f"the run in {folder} was begun with another zoo: it has a student of {taught_by['from']}, which is no "
                f"teacher of {zoo.url}; give the zoo that it was begun with or choose another folder"
            )


def _begin_by_ranking(
    zoo: Zoo, plan: Plan, metrics: Sequence[str], asked: Mapping[str, Any], top: int, folder: Path
) -> tuple[Ranking, list[str]]:
    """Rank the zoo and find the leaders; with the ranking's file the run has begun."""
    ranking = rank(zoo, plan.task, metrics, **asked)
    leaders = _leaders(ranking, top)
    plan.check_leaders(zoo, leaders, ranking)
    # What was refused up to here leaves the folder free.
    if not (folder / RANKING).exists():
        write_atomically(folder / RANKING, ranking.to_json().encode())
    return ranking, leaders


def _leaders(ranking: Ranking, top: int) -> list[str]:
    _ = ranking.best  # raises with the reasons where no teacher has a rank
    return [row.name for row in ranking.rows if row.rank is not None and row.rank <= top]


def _said(notify: Callable[[str], None], sentences: Sequence[str]) -> list[str]:
    for sentence in sentences:
        notify(sentence)
    return list(sentences)


def _train_alone(
    plan: Plan, folder: Path, notify: Callable[[str], None]
) -> tuple[Plan, list[Trial], list[str]]:
    """The students without a teacher; with what they settled, and what was said about that."""
    ways = in_which_ways(plan.recipe, other_recipe(plan.recipe, plan.options), plan.views)
    notify(f"training {plan.shared['student']} without a teacher, to compare with{ways}")
    trials = [one.on(plan.judged, folder) for one in plan.alone(plan.judged)[: plan.tries]]
    plan, told = plan.settled(trials)
    said = _said(notify, told)
    trials += [one.on(plan.judged, folder) for one in plan.alone(plan.judged)[plan.tries :]]
    return plan, trials, said


def _distil(
    attempts: Sequence[Attempt], plan: Plan, folder: Path, notify: Callable[[str], None]
) -> list[Trial]:
    trials = []
    for one in attempts:
        notify(f"distilling {one.teacher} by {one.method}")
        trials.append(one.on(plan.judged, folder))
    return trials


def _best(trials: Sequence[Trial]) -> Trial:
    """The best on validation data; at a draw the earlier one: the plain student, then the better ranked teacher."""
    return max(trials, key=lambda one: one.validation_accuracy)


def _keep_one(
    trials: Sequence[Trial],
    taught: Sequence[Attempt],
    ranking: Ranking,
    plan: Plan,
    folder: Path,
    notify: Callable[[str], None],
) -> Kept:
    """Choose by validation data between the plain student, the first, and the others; then look at the test split."""
    best, plain = _best(trials), trials[0]
    last = _last_trainings((best, plain), taught, plan, folder, notify)
    # One that goes on keeps its first ranking until no student has refused other settings.
    write_atomically(folder / RANKING, ranking.to_json().encode())
    tested = {name: score_run(one.path, plan.task, plan.shared["device"]) for name, one in last.items()}
    return Kept(best, last[best.path.name], tested[best.path.name], tested[plain.path.name])


def _last_trainings(
    trials: Sequence[Trial],
    taught: Sequence[Attempt],
    plan: Plan,
    folder: Path,
    notify: Callable[[str], None],
) -> dict[str, Trial]:
    """These trials by name; where the plan is to refit, their students trained once more."""
    found = {one.path.name: one for one in trials}
    if not plan.refit:
        return found
    others = "the kept student, and the plain one to compare with" if len(found) > 1 else "the plain student"
    notify(f"training once more, on all labels: {others}")
    # Evaluated at the end only: until then nothing looks at the test split.
    return {
        one.folder: one.without_stop(found[one.folder].result).on(
            plan.task, folder / "all-labels", evaluate_every=NEVER
        )
        for one in (*taught, *plan.alone(plan.task))
        if one.folder in found
    }


def _tell(result: PipelineResult, task: Task, report: bool) -> None:
    """Put pipeline.json and the report beside the kept student's files."""
    folder = result.path
    write_atomically(folder / "pipeline.json", json.dumps(result.to_json(), indent=2).encode())
    if report:
        from preceptor.report import write_report

        write_report(folder, folder / "report.html", task=task)
