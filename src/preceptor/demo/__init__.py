"""The whole story on embedded data: letters teach digits.

A zoo of small networks is trained on rendered characters and ranked for the task of reading digits from a few
noisy samples. The first and the last of the ranking are distilled into students, beside students without a
teacher, and so is the teacher of letters where it is neither.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from preceptor.core import PreceptorError, Ranking, RankingRow
from preceptor.data import Task
from preceptor.demo.settings import METHOD, METRICS, STORYTELLER, Settings
from preceptor.demo.students import Arm, gain_sentence, train_arm
from preceptor.demo.teachers import build_zoo
from preceptor.distill.run_folder import RunFolder
from preceptor.files import local_path, write_atomically
from preceptor.rank.assess import limited_threads
from preceptor.rank.ranking import rank
from preceptor.report import write_report
from preceptor.report.correspondence import read_correspondence
from preceptor.report.story import DEMO
from preceptor.zoo import Zoo

__all__ = ["Settings", "run_demo"]

Notify = Callable[[str], None]
TITLE = "Letters teach digits"


def run_demo(
    out: str | os.PathLike[str],
    *,
    seeds: int = 3,
    settings: Settings | None = None,
    notify: Notify = lambda text: None,
    show_ranking: Callable[[Ranking], None] = lambda ranking: None,
) -> dict[str, Any]:
    """Build or read the zoo, rank it, distil, compare, and write a report.

    Finished parts in `out` are used again, so an interrupted demonstration goes on where it stopped.

    Args:
        out: Folder for the zoo, the ranking, the runs and the report.
        seeds: How many students of each kind.
        settings: Sizes.
        notify: Told what happens, line by line.
        show_ranking: Called with the ranking.

    Returns:
        All numbers, as JSON can hold them.
    """
    if seeds < 1:
        raise PreceptorError(f"seeds {seeds} came; at least 1 was expected")
    folder = local_path(out)
    _check_free(folder)
    with limited_threads(1):  # batches are so small that threads wait for each other more than they work
        return _tell(folder, seeds, settings or Settings(), notify, show_ranking)


def _check_free(folder: Path) -> None:
    """Refuse a folder in which somebody's run or ranking would be replaced; a demonstration has teachers beside it."""
    ranked = RunFolder(folder).ranking_file.exists() and not (folder / "teachers").exists()
    if RunFolder(folder).exists or ranked:
        raise PreceptorError(
            f"{folder} already holds a run or a ranking, which the demonstration would replace; choose another folder "
            "(--out)"
        )


def _tell(
    folder: Path, seeds: int, settings: Settings, notify: Notify, show_ranking: Callable[[Ranking], None]
) -> dict[str, Any]:
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    notify(f"1. A zoo of teachers in {folder / 'zoo'}: small networks that read characters")
    zoo = build_zoo(folder, settings, notify)
    task = Task(settings.target)
    notify(f"2. Which one helps to read digits from {settings.per_class} samples of each?")
    ranking = _rank(zoo, task, folder)
    show_ranking(ranking)
    for line in (_score_in_words(ranking), *_dissent(ranking)):
        notify(f"  {line}")
    flows = _flows(ranking)
    notify("3. How letters become digits: what reaches each digit in the transport plan of letters")
    for flow in flows:
        notify(f"  {flow['text']}")
    arms = _arms(zoo, ranking, task, folder, seeds, settings, notify)
    sentences = [gain_sentence(arm, arms["alone"]) for name, arm in arms.items() if name != "alone"]
    notify("5. What it gained, on test images in fonts that nobody was trained on")
    for line in (*map(str, arms.values()), *sentences):
        notify(f"  {line}")
    _write_story(folder, ranking, arms, sentences, settings)
    report = write_report(folder, folder / "report.html", task=task)
    return {
        "folder": str(folder), "report": str(report), "task": settings.target, "seeds": seeds,
        "ranking": [{"name": row.name, "rank": row.rank, "scores": dict(row.scores)} for row in ranking.rows],
        "flows": flows,
        "students": {name: arm.to_json() for name, arm in arms.items()},
        "sentences": sentences, "method": METHOD,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip


def _rank(zoo: Zoo, task: Task, folder: Path) -> Ranking:
    """The ranking, with the transport plans of its first teacher and of the storyteller."""
    cache = str(folder / "cache")
    ranking = rank(zoo, task, METRICS, cache=cache, confidence=True)
    first = Path(ranking.best).name
    teller = rank(zoo, task, METRICS, cache=cache, teachers=[STORYTELLER])[STORYTELLER]  # out of the journal
    rows = [replace(row, details=_details(row, teller, keep_plan=row.name == first)) for row in ranking.rows]
    ranking = replace(ranking, rows=tuple(rows))
    write_atomically(folder / "ranking.json", ranking.to_json().encode())
    return ranking


def _score_in_words(ranking: Ranking) -> str:
    """The first teacher's score as the probability that it stands for."""
    name = Path(ranking.best).name
    right, guess = math.exp(ranking[name].scores["bridge"]), 1 / len(ranking.task["classes"])
    return (
        f"bridge: carried over to digits, the predictions of {name} give the right one {right:.0%} "
        f"(geometric mean), guessing {guess:.0%}"
    )


def _dissent(ranking: Ranking) -> list[str]:
    """Which metrics put another teacher first than the one that decides."""
    first = Path(ranking.best).name
    others: dict[str, list[str]] = {}
    for metric in METRICS:
        scored = [row for row in ranking.rows if metric in row.scores]
        winner = max(scored, key=lambda row: row.scores[metric]).name if scored else first
        if winner != first:
            others.setdefault(winner, []).append(metric)
    return [_dissenting(metrics, winner) for winner, metrics in others.items()]


def _dissenting(metrics: list[str], winner: str) -> str:
    *others, last = metrics
    if not others:
        return f"{last} puts {winner} first instead"
    return f"{', '.join(others)} and {last} put {winner} first instead"


def _details(row: RankingRow, teller: RankingRow, keep_plan: bool) -> dict[str, Any]:
    if row.name == teller.name:
        return dict(teller.details)
    return {name: value for name, value in row.details.items() if name != "correspondence" or keep_plan}


def _flows(ranking: Ranking) -> list[dict[str, Any]]:
    """The letters that send most to each digit."""
    correspondence = read_correspondence(STORYTELLER, ranking[STORYTELLER].details)
    if correspondence is None:
        reasons = "; ".join(ranking[STORYTELLER].reasons.values())
        raise PreceptorError(
            f"{STORYTELLER} could not be assessed ({reasons}); remove {ranking.zoo} and try again"
        )
    found: dict[str, list[tuple[str, float]]] = {}
    for flow in correspondence.flows():
        found.setdefault(flow.task, []).append((flow.teacher, flow.share))
    return [_flow(digit, found[digit]) for digit in sorted(found)]


def _flow(digit: str, sources: list[tuple[str, float]]) -> dict[str, Any]:
    (first, share), *others = sources
    then = ", ".join(f"{name} {part:.0%}" for name, part in others)
    text = f"{first} → {digit}   {share:.0%}" + (f"   then {then}" if then else "")
    return {"digit": digit, "from": [{"letter": name, "share": part} for name, part in sources], "text": text}


def _arms(
    zoo: Zoo, ranking: Ranking, task: Task, folder: Path, seeds: int, settings: Settings, notify: Notify
) -> dict[str, Arm]:
    """Students alone, from the last and from the first of the ranking, and from the storyteller."""
    ranked = [row.name for row in ranking.rows if row.rank is not None]
    who = {"alone": None, "worst": ranked[-1], STORYTELLER: STORYTELLER, "best": ranked[0]}
    if STORYTELLER in (ranked[0], ranked[-1]):
        del who[STORYTELLER]
    shown = ", ".join(f"from {name}" for name in who.values() if name)
    notify(f"4. Students with the same budget, {seeds} of each: alone, {shown}")
    return {
        key: train_arm(name and f"{zoo.url}/{name}", task, folder, seeds, settings, notify)
        for key, name in who.items()
    }


def _write_story(
    folder: Path, ranking: Ranking, arms: Mapping[str, Arm], sentences: list[str], settings: Settings
) -> None:
    """demo.json, from which the report is made; nothing was chosen by the test split."""
    best = arms["best"]
    first = f"ranked {len(ranking.rows)} teachers by {ranking.metric}; first: {best.teacher}"
    story = {
        "title": TITLE,
        "teacher": best.teacher,
        "accuracy": best.mean,
        "baseline_accuracy": arms["alone"].mean,
        "verdict": [first, *reversed(sentences)],  # the first teacher before the last
        "trials": [
            {"name": arm.name, "teacher": arm.teacher, "path": str(arm.paths[0].relative_to(folder))}
            for arm in arms.values()
        ],
        "arms": [arm.to_json() for arm in arms.values()],
        "config": {"student": settings.arch, "method": METHOD, "task": settings.target},
    }
    write_atomically(folder / DEMO, json.dumps(story, indent=2).encode())
