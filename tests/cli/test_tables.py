from __future__ import annotations

import io

import pytest
from rich.console import Console

from preceptor.cli.tables import ranking_tables
from preceptor.core import RankingRow
from preceptor.metrics import METRICS
from preceptor.rank.table import sort_rows

NAMES = list(METRICS)
PAIRS = [{"teacher": name, "task": task} for name, task in (("letter O", "zero"), ("letter l", "one"))]
ROWS = sort_rows(
    [
        RankingRow(f"teacher-{k}", None, {name: -1 - k - n / 7 for n, name in enumerate(NAMES)},
                   details={"probe_accuracy": 0.5, "class_pairs": PAIRS})
        for k in range(3)
    ] + [RankingRow("broken", None, {}, {"teacher": "weights.safetensors is cut short; add the teacher again"})],
    "logme",
)  # fmt: skip


def plain(column):
    return [cell.plain for cell in column.cells]


def printed(tables, width):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 75, 80, 100, 120, 200])
def test_every_metric_is_shown_once_and_whole_on_a_terminal_of_any_width(width):
    tables = ranking_tables(ROWS, NAMES, by="logme", width=width)
    lines = printed(tables, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    shown = [column.header for table in tables for column in table.columns]
    assert sorted(name for name in shown if name in METRICS) == sorted(NAMES)
    assert [column.header for column in tables[0].columns][2] == "logme"
    assert shown.count("remark") == 1
    for table in tables:
        assert [column.header for column in table.columns][:2] == ["#", "teacher"]
        assert plain(table.columns[0]) == ["1", "2", "3", "-"]
    for name in NAMES:
        (column,) = (c for table in tables for c in table.columns if c.header == name)
        assert plain(column) == [f"{row.scores[name]:.4f}" if row.scores else "" for row in ROWS]


def test_a_wide_terminal_and_a_pipe_get_one_table():
    assert len(ranking_tables(ROWS, ["logme", "knn"], by="logme", width=100)) == 1
    assert len(ranking_tables(ROWS, NAMES, by="logme")) == 1
    assert len(ranking_tables(ROWS, NAMES, by="logme", width=80)) > 2


def test_a_very_narrow_one_still_ends():
    remarks = ("probe fit", "forward s", "metric s", "remark")
    assert len(ranking_tables(ROWS, NAMES, by="logme", width=10)) == len(NAMES) + len(remarks)


def test_top_leaves_those_without_a_rank():
    (table,) = ranking_tables(ROWS, ["logme"], by="logme", top=1)
    assert plain(table.columns[1]) == ["teacher-0", "broken"]
    assert "cut short" in plain(table.columns[-1])[1]


def test_no_rows_are_an_empty_table():
    (table,) = ranking_tables((), ["logme"], by="logme", width=80)
    assert table.row_count == 0


def test_class_names_are_shown_as_they_are():
    pairs = [{"teacher": "[/b] red", "task": "[cat]"}, {"teacher": ":dog:", "task": "a"}]
    row = RankingRow("t", 1, {"logme": 1.0}, details={"class_pairs": pairs})
    shown = "\n".join(printed(ranking_tables([row], ["logme"], by="logme"), 120))
    assert "[/b] red → [cat], :dog: → a" in shown
