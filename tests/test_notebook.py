"""What notebooks show: well-formed HTML with the right numbers in it, and nothing that a name can break."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch
from torch import nn

from preceptor.core import Ranking, RankingRow
from preceptor.distill.result import Result
from preceptor.notebook import MOST_CELLS, curve, heat, table
from preceptor.ot import sinkhorn
from preceptor.pipeline import PipelineResult, Trial


def parse(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{html}</div>")


def cells(root: ElementTree.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


RANKING = Ranking(
    "sinkhorn",
    (
        RankingRow("<b>&amp;", 1, {"sinkhorn": -0.12345678, "logme": 2.0}),
        RankingRow("broken", None, {}, {"teacher": "gives NaN"}),
    ),
    task={"name": "digits"},
)


def result(**more: object) -> Result:
    history = [{"test_accuracy": 0.25}, {}, {"test_accuracy": 0.75}]
    return Result(nn.Identity(), 0.75, {}, [], history, {"arch": "cnn-8", "method": "sinkhorn"}, **more)  # type: ignore[arg-type]


def test_a_ranking_is_a_table_of_all_teachers() -> None:
    shown = cells(parse(RANKING._repr_html_()))
    assert shown == [
        ["#", "teacher", "sinkhorn", "logme", "remark"],
        ["1", "<b>&amp;", "-0.1235", "2", ""],
        ["", "broken", "", "", "gives NaN"],
    ]


def test_a_solution_shows_its_quality_and_the_mean_plan() -> None:
    p, q = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    solved = sinkhorn(p, q, torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]]))
    root = parse(solved._repr_html_())
    facts = dict(cells(root)[1:])
    assert facts["problems"] == "2, 2 x 3 classes"
    assert facts["converged"].startswith("2 of 2 in ")
    assert facts["value, mean"] == f"{float(solved.value.mean()):.4g}"
    squares = [float(square[0].text.rpartition(" ")[2]) for square in root.iter("rect")]  # type: ignore[union-attr]
    torch.testing.assert_close(
        torch.tensor(squares).reshape(2, 3), solved.plan().mean(dim=0), rtol=1e-2, atol=1e-6
    )


def test_a_student_shows_accuracy_baseline_curve_and_notes() -> None:
    root = parse(result(baseline_accuracy=0.5, notes=("one & only",), path=Path("runs/a"))._repr_html_())
    facts = dict(cells(root)[1:])
    assert facts["accuracy on the test split"] == "75.0 %"
    assert facts["plain student"] == "50.0 %"
    assert next(root.iter("p")).text == "one & only"
    assert next(root.iter("polyline")).attrib["points"] == "0.0,86.0 320.0,4.0"  # the gap is bridged
    assert "plain student" not in result()._repr_html_()


def test_a_pipeline_shows_verdict_trials_and_ranking() -> None:
    trials = [
        Trial(None, 0.4, Path("plain"), result()),
        Trial("letters", 0.5, Path("one"), result(), "kd"),
        Trial("letters", 0.6, Path("another"), result(), "sinkhorn"),
    ]
    kept = PipelineResult(
        nn.Identity(), "letters", "sinkhorn", 0.5, 0.4, RANKING, trials, ["it helped"], Path("out")
    )
    root = parse(kept._repr_html_())
    assert next(root.iter("p")).text == "it helped"
    assert cells(root)[1:4] == [
        ["none (plain student)", "none", "40.0 %", ""],
        ["letters", "kd", "50.0 %", ""],
        ["letters", "sinkhorn", "60.0 %", "kept"],
    ]
    assert ["", "broken", "", "", "gives NaN"] in cells(root)


def test_what_cannot_be_drawn_is_left_out() -> None:
    assert curve([0.5], "one") == ""
    assert curve([None, 0.5, None], "one") == ""
    assert heat([], "empty") == heat([[]], "empty") == ""
    assert heat([[0.0] * 100] * (MOST_CELLS // 100 + 1), "large") == ""
    assert len(list(parse(heat([[0.0, 0.0]], "zeros")).iter("rect"))) == 2
    assert cells(parse(table(["a"], [[None], [1.0], ["<"]]))) == [["a"], [""], ["1"], ["<"]]


def test_nothing_is_shown_as_nothing() -> None:
    empty = sinkhorn(torch.zeros(0, 3), torch.zeros(0, 2), torch.rand(3, 2))
    assert cells(parse(empty._repr_html_())) == [["Sinkhorn", "epsilon 0.1"], ["problems", "none"]]
    assert cells(parse(Ranking("bridge", ())._repr_html_())) == [["#", "teacher", "bridge", "remark"]]
