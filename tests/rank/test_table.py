from __future__ import annotations

import io

import pytest
from rich.console import Console

from preceptor.core import RankingRow
from preceptor.metrics import METRICS
from preceptor.rank.table import rich_tables, sort_rows

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


def printed(tables, width):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [75, 80, 100, 120, 200])
def test_every_metric_is_shown_once_and_whole_on_a_terminal_of_any_width(width):
    tables = rich_tables(ROWS, NAMES, by="logme", width=width)
    lines = printed(tables, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    shown = [column.header for table in tables for column in table.columns]
    assert sorted(name for name in shown if name in METRICS) == sorted(NAMES)
    assert [column.header for column in tables[0].columns][2] == "logme"
    assert shown.count("remark") == 1
    for table in tables:
        assert [column.header for column in table.columns][:2] == ["#", "teacher"]
        assert list(table.columns[0].cells) == ["1", "2", "3", "-"]
    for name in NAMES:
        (column,) = (c for table in tables for c in table.columns if c.header == name)
        assert list(column.cells) == [f"{row.scores[name]:.4f}" if row.scores else "" for row in ROWS]


def test_a_wide_terminal_and_a_pipe_get_one_table():
    assert len(rich_tables(ROWS, ["logme", "knn"], by="logme", width=100)) == 1
    assert len(rich_tables(ROWS, NAMES, by="logme")) == 1
    assert len(rich_tables(ROWS, NAMES, by="logme", width=80)) > 2


def test_a_very_narrow_one_still_ends():
    assert len(rich_tables(ROWS, NAMES, by="logme", width=10)) == len(NAMES)


def test_top_leaves_those_without_a_rank():
    (table,) = rich_tables(ROWS, ["logme"], by="logme", top=1)
    assert list(table.columns[1].cells) == ["teacher-0", "broken"]
    assert "cut short" in list(table.columns[-1].cells)[1]


def test_no_rows_are_an_empty_table():
    (table,) = rich_tables((), ["logme"], by="logme", width=80)
    assert table.row_count == 0
