"""Write docs/results.md with its figures, and the small tables of gains on other pages, from results/*.jsonl."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments import results
from experiments.bars import bars
from experiments.book import NOT_RUN, Book, table
from experiments.glance import TABLES
from experiments.items import ITEMS
from experiments.jobs import PAPER, SMOKE
from experiments.summary import in_short

ORDER = ("tab02", "fig03", "fig05", "seen", "few", "search", "tab04", "tab05", "tab06", "tab07", "tab08", "tab09",
         "tab10", "fig06", "fig07", "fig08", "fig09", "tab13", "fig10")  # fmt: skip
HEAD = """# Results

Written by `experiments/report.py` from the rows in `results/`; not to be edited. For each table and figure of the paper
it says what the paper has and what we have. A mean is followed by ± the standard deviation over seeds and, in brackets,
their number; where a gain has its standard error instead, that is said. Every row names its command, commit, seed,
hardware and versions. "{not_run}" stands where there is no row{listed}.
"""
BARS = """\
Set before the runs, from the paper's own figures and what a user would need. What came after a look at rows (images new
to the teacher, mixed ones, the patient recipe, `bridge`, students of 25 images a class for the metrics, the bar of
Tab. 9 in two parts) is held to the same limits. Seeds are three at most, of one teacher and one split: their errors
know nothing of other teachers."""

TRAINER = """\
Students were trained by `experiments/packed.py`, many side by side, and not by `preceptor.train`; a test holds that a
pack of one ends with the weights that `preceptor.train` gives it. By design a pack leaves out the ragged end of an
epoch, tells a falling weight of its progress once an epoch, rounds a milestone between two epochs up, solves the
transport of `wcord` in 50 iterations, and matches the channels of `mgd` after the first step and between epochs."""


def page(book: Book, folder: Path) -> str:
    """The page; figures go to `folder`."""
    parts, missing = [], []
    for name in ORDER:
        title, command = ITEMS[name].TITLE, f"`python experiments/run.py {name}`"
        text = _section(book, name, folder)
        if text is None:
            missing.append(f"- {title}: {command}")
        else:
            parts += [f"## {title}", command, text]
    listed = "; experiments without any are listed [at the end](#not-run-yet)" if missing else ""
    head = [HEAD.format(not_run=NOT_RUN, listed=listed).strip()]
    if told := in_short(book):
        head += ["## In short", told]
    head += ["## Bars", BARS, _bars(book)]
    head += list(
        filter(None, ["## Where the numbers come from", TRAINER, _origin(book), _trained_again(book)])
    )
    last = [f"## {NOT_RUN.capitalize()}", "\n".join(missing)] if missing else []
    return "\n\n".join([*head, *parts, *last]) + "\n"


def _section(book: Book, name: str, folder: Path) -> str | None:
    """What there is to show of an experiment; None where it has no row that counts."""
    item = ITEMS[name]
    rows = [row for file in {name, getattr(item, "SCORES", name)} for row in book.rows(file)]
    if not (item.counted(rows) if hasattr(item, "counted") else rows):
        return None
    return folded(item.section(book, folder))


def folded(section: str) -> str:
    """The section without what tells a stranger nothing: tables, rows and columns that have no number become a line."""
    parts: list[str] = []
    for part in section.split("\n\n"):
        if not part.startswith("|"):
            parts.append(part)
            continue
        head, rule, *lines = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()
        )
        cells = [cell for line in lines for cell in line[1:] if cell not in BLANK]
        if cells and all(NOT_RUN in cell for cell in cells):
            parts = _missing(parts, head[0] or "the table")
            continue
        rows = [line for line in lines if not _empty(line[1:])]
        columns = [
            place for place in range(len(head)) if place == 0 or not _empty([line[place] for line in lines])
        ]
        shown = [[line[place] for place in columns] for line in (head, rule, *rows)]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in shown))
        lacking = [head[place] for place in range(len(head)) if place not in columns]
        lacking += [line[0] for line in lines if line not in rows]
        if lacking:
            parts.append(f"*{NOT_RUN}, above: {'; '.join(lacking)}*")
    return "\n\n".join(parts)


BLANK = ("", "–")


def _empty(cells: list[str]) -> bool:
    """Whether something was planned and there is no number, the paper's included."""
    return any(NOT_RUN in cell for cell in cells) and all(
        cell in BLANK or cell.removeprefix("– / ") == NOT_RUN for cell in cells
    )


def _missing(parts: list[str], name: str) -> list[str]:
    """With a line for a table that is not there, or its name in the line before."""
    if parts and parts[-1].startswith(f"*{NOT_RUN}: "):
        return [*parts[:-1], f"{parts[-1][:-1]}; {name}*"]
    return [*parts, f"*{NOT_RUN}: {name}*"]


def _bars(book: Book) -> str:
    lines = [[bar.claim, f"**{bar.verdict}**", bar.detail] for bar in bars(book)]
    return table(["bar", "verdict", "numbers"], lines).replace("---:", "---")


def _origin(book: Book) -> str:
    """Rows of each file with their seeds, machines and commits."""
    lines = []
    for path in sorted(book.folder.glob("*.jsonl")):
        rows = book.rows(path.stem)
        proofs = [row.get("evidence", {}) for row in rows]
        seeds = sorted({row["seed"] for row in rows if isinstance(row.get("seed"), int)})
        machines = ", ".join(
            name for name, _ in Counter(p.get("hardware") or "?" for p in proofs).most_common()
        )
        commits = ", ".join(dict.fromkeys((p.get("commit") or "?")[:8] for p in proofs))
        versions = ", ".join(dict.fromkeys(p.get("torch") or "?" for p in proofs))
        lines.append(
            [f"`{path.name}`", len(rows), ", ".join(map(str, seeds)), machines, f"torch {versions}", commits]
        )
    return table(["rows", "number", "seeds", "hardware", "versions", "commits"], lines)


def _trained_again(book: Book) -> str:
    """A table of the teachers that have been trained more than once, with what each training reached."""
    found: dict[tuple, dict[str, str]] = {}
    for row in book.rows("teachers"):
        spec = tuple(row.get(name) for name in ("arch", "data", "task", "epochs", "friend"))
        commit = (row.get("evidence", {}).get("commit") or "?")[:8]
        found.setdefault(spec, {})[commit] = f"{100 * row['accuracy']:.1f}"
    again = {spec: trainings for spec, trainings in found.items() if len(trainings) > 1}
    if not again:
        return ""
    commits = list(dict.fromkeys(commit for trainings in again.values() for commit in trainings))
    lines = sorted(
        [f"{data}, task {task + 1}, {arch}", *(trainings.get(commit, "–") for commit in commits)]
        for (arch, data, task, *_), trainings in again.items()
    )
    text = (
        "Teachers that were trained more than once, in percent; a row's commit says which of them taught it."
    )
    return text + "\n\n" + table(["teacher", *(f"at {commit}" for commit in commits)], lines)


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    parser.add_argument("--out", type=Path, default=results.ROOT / "docs")
    parser.add_argument("--scale", choices=("smoke", "paper"), default="paper")
    args = parser.parse_args(arguments)
    book = Book(args.results, SMOKE if args.scale == "smoke" else PAPER)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results.md").write_text(page(book, args.out / "figures"))
    print(f"{args.out / 'results.md'}")
    for name, (there, make) in TABLES.items():
        if (args.out / there).exists():
            results.put(name, make(book), args.out / there)


if __name__ == "__main__":
    main()
