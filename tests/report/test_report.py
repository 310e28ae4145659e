from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from preceptor.core import PreceptorError, Ranking
from preceptor.report import read_story, write_report
from preceptor.report.correspondence import likeness_order, read_correspondence
from preceptor.report.figures import curves


def test_a_ranking_becomes_a_page_without_network(ranking, task, tmp_path):
    page = write_report(ranking, tmp_path / "deep" / "r.html", task=task).read_text()
    assert "letters" in page
    assert "97.0 %" in page
    assert "its weights are truncated" in page
    assert "&lt;broken&gt;" in page, "names are escaped"
    assert "<broken>" not in page
    assert not re.search(r"""(src|href)=["']https?:""", page)
    assert page.count('<image href="data:image/png') == 4, "a thumbnail for each of my classes"


def test_flows_carry_the_plan(ranking):
    correspondence = read_correspondence("letters", ranking["letters"].details)
    strongest = {flow.task: flow.teacher for flow in reversed(correspondence.flows())}
    assert strongest["0"] == "O"
    assert strongest["2"] == "Z"
    assert strongest["5"] == "S"
    both = [flow for flow in correspondence.flows() if flow.task == "1"]
    assert {flow.teacher for flow in both} == {"I", "L"}
    assert sum(flow.share for flow in both) == pytest.approx(1, abs=1e-3)


def test_order_keeps_every_pair_of_classes(ranking):
    raw = ranking["letters"].details["correspondence"]
    correspondence = read_correspondence("letters", ranking["letters"].details)
    for row, teacher in enumerate(correspondence.teacher_classes):
        for column, mine in enumerate(correspondence.task_classes):
            given = raw["cost"][raw["teacher_classes"].index(teacher)][raw["task_classes"].index(mine)]
            assert correspondence.cost[row, column] == given
    assert [match[1] for match in correspondence.matches() if match[0] == "0"] == ["O"]


def test_like_rows_stand_side_by_side():
    points = np.array([[0.0], [10.0], [0.1], [10.1], [5.0]])
    order = likeness_order(points).tolist()
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


def test_costs_between_the_same_classes_are_not_taken_for_distances():
    costs = np.abs(
        np.subtract.outer([0.0, 10.0, 0.1, 10.1], [0.0, 10.0, 0.1, 10.1])
    )  # square, with zeros on the diagonal
    order = likeness_order(costs).tolist()  # warnings are errors here
    assert abs(order.index(0) - order.index(2)) == 1


def test_a_pipeline_tells_its_whole_story(pipeline_folder, tmp_path):
    story = read_story(pipeline_folder)
    assert [run.name for run in story.runs] == ["plain student", "letters"]
    page = write_report(pipeline_folder, tmp_path / "r.html").read_text()
    for part in (
        'id="ranking"',
        'id="correspondence"',
        'id="training"',
        'id="evidence"',
        "kept the student of letters",
    ):
        assert part in page
    assert "+25.0" in page, "class 0 gained"
    assert "-10.0" in page, "class 5 lost"
    assert "72.0 %" in page
    assert len(page) < 2_000_000


def test_json_file_and_folder_give_the_same_ranking(ranking, tmp_path):
    (tmp_path / "ranking.json").write_text(ranking.to_json())
    assert read_story(tmp_path).ranking == read_story(tmp_path / "ranking.json").ranking
    assert Ranking.from_json(ranking.to_json()).to_json() == ranking.to_json()


def test_a_folder_without_anything_says_what_to_give(tmp_path):
    with pytest.raises(PreceptorError, match=r"holds neither ranking\.json nor a run"):
        read_story(tmp_path)
    with pytest.raises(
        PreceptorError, match="nowhere does not exist; give a folder that `preceptor rank --out`"
    ):
        read_story(tmp_path / "nowhere")


def test_curves_leave_gaps_out():
    drawn = curves({"a": [0.1, None, 0.3], "b": [float("nan"), 0.2, 0.2]}, "accuracy", percent=True)
    lines = re.findall(r'<polyline points="([^"]*)"', drawn)
    assert [len(line.split()) for line in lines] == [2, 2]
    assert curves({"a": [None]}, "nothing") == ""


def axis(drawn: str) -> list[str]:
    return re.findall(r'<text [^>]*text-anchor="end">([^<]*)</text>', drawn)[:4]


@pytest.mark.parametrize(
    ("value", "percent", "labels"),
    [
        (0.6, True, ["55.0 %", "58.3 %", "61.7 %", "65.0 %"]),
        (1.0, True, ["95.0 %", "96.7 %", "98.3 %", "100.0 %"]),
        (0.0, True, ["0.0 %", "1.7 %", "3.3 %", "5.0 %"]),
        (2.0, False, ["1.900", "1.967", "2.033", "2.100"]),
        (0.0, False, ["-0.050", "-0.017", "0.017", "0.050"]),
    ],
)
def test_a_flat_line_has_an_axis_close_around_it(value, percent, labels):
    assert axis(curves({"a": [value] * 3}, "flat", percent=percent)) == labels


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.5, 4.5), (1.501, 1.512), (0, 2.3), (123456.0, 123457.0), (3e-9, 4e-9), (-1, 2e7), (2.3, 2.3001)],
)
@pytest.mark.parametrize("percent", [False, True])
def test_labels_of_an_axis_differ_and_tell_their_places(low, high, percent):
    labels = axis(curves({"a": [low, high]}, "loss", percent=percent))
    told = [float(label.removesuffix(" %")) / (100 if percent else 1) for label in labels]
    np.testing.assert_allclose(told, np.linspace(low, high, 4), rtol=0, atol=(high - low) / 30)
    assert len(set(labels)) == 4


def test_a_line_of_rounding_errors_is_flat():
    assert axis(curves({"a": [2.0, 2.0 + 1e-15]}, "loss")) == ["1.900", "1.967", "2.033", "2.100"]


def test_a_line_of_one_point_is_a_dot():
    drawn = curves({"once": [None, None, 0.5], "always": [0.4, 0.5, 0.6]}, "accuracy", percent=True)
    assert re.findall(r'<circle cx="([^"]*)" [^>]*><title>([^<]*)</title>', drawn) == [("632.0", "once")]
    assert re.findall(r"<polyline [^>]*><title>([^<]*)</title>", drawn) == ["always"]
    assert "<circle" in curves({"a": [0.5]}, "one epoch")


def test_a_note_says_whose_it_is_where_there_are_several_runs(pipeline_folder, tmp_path):
    for path in ("plain", "from-letters"):
        file = pipeline_folder / path / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"notes": ["the weights are old"]}))
    page = write_report(pipeline_folder, tmp_path / "both.html").read_text()
    assert re.findall(r'<p class="note">([^<]*)</p>', page) == [
        "plain student: the weights are old",
        "letters: the weights are old",
    ]
    page = write_report(pipeline_folder / "plain", tmp_path / "one.html").read_text()
    assert re.findall(r'<p class="note">([^<]*)</p>', page) == ["the weights are old"]


def test_a_damaged_ranking_says_so(ranking, tmp_path):
    (tmp_path / "ranking.json").write_text(ranking.to_json()[:200])
    with pytest.raises(PreceptorError, match=r"is no ranking .*write it again"):
        read_story(tmp_path)
    (tmp_path / "other.json").write_text('{"rows": [], "colour": 1}')
    with pytest.raises(PreceptorError, match="is no ranking"):
        read_story(tmp_path / "other.json")
    (tmp_path / "other.json").write_bytes(b"\xff")
    with pytest.raises(PreceptorError, match=r"other\.json cannot be read: 'utf-8' codec"):
        read_story(tmp_path / "other.json")


def test_rankings_of_other_versions(ranking, tmp_path):
    data = json.loads(ranking.to_json())
    assert data["schema_version"] == 1
    later = {**data, "later": 1, "rows": [{**row, "later": 1} for row in data["rows"]]}
    assert Ranking.from_json(json.dumps(later)) == ranking
    earlier = ranking.to_json().replace('"correspondence"', '"bridge"').replace('"schema_version": 1,', "")
    assert '"bridge"' in earlier
    assert "schema_version" not in earlier
    assert Ranking.from_json(earlier) == ranking
    (tmp_path / "ranking.json").write_text(json.dumps({**data, "schema_version": 2}))
    sentence = "the ranking has schema version 2 and this preceptor reads up to 1; use a newer preceptor"
    with pytest.raises(PreceptorError, match=sentence):
        read_story(tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "5", '{"rows": 3, "metric": "leep"}', '{"rows": [], "schema_version": "x"}']
)
def test_what_is_no_ranking(text):
    with pytest.raises(PreceptorError, match=r"this is no ranking .*; write it again"):
        Ranking.from_json(text)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("config.json", '{"a": 1}', "config.json is no run's: it names no classes; give the folder of a run"),
        ("config.json", "[]", "config.json holds no JSON object; restore it or train again"),
        ("result.json", '{"accu', "result.json is not valid JSON .*; restore it or train again"),
        ("log.jsonl", "nonsense\n", "log.jsonl is not valid JSON .*; restore it or train again"),
    ],
)
def test_a_damaged_run_says_so(pipeline_folder, file, text, sentence):
    (pipeline_folder / "plain" / file).write_text(text)
    with pytest.raises(PreceptorError, match=sentence):
        read_story(pipeline_folder / "plain")


def test_a_last_line_of_the_log_that_was_cut_short_is_left_out(pipeline_folder):
    log = pipeline_folder / "plain" / "log.jsonl"
    whole = read_story(pipeline_folder / "plain").runs[0]
    log.write_text(log.read_text() + '{"epoch": 4, "te')
    assert read_story(pipeline_folder / "plain").runs[0] == whole


def test_data_of_another_task_is_refused(pipeline_folder, ranking, task, tmp_path):
    other = task.subset(list(reversed(task.classes)))
    with pytest.raises(PreceptorError, match=r"has the classes .*; give the data that it was made with"):
        write_report(pipeline_folder, tmp_path / "page.html", task=other)
    known = replace(ranking, task={**ranking.task, "classes": list(task.classes)})
    write_report(known, tmp_path / "page.html", task=task)
    with pytest.raises(PreceptorError, match="the report is about"):
        write_report(known, tmp_path / "page.html", task=other)


def test_a_page_that_cannot_be_written_is_told_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("preceptor.report.read_story", lambda *_, **__: pytest.fail("the page was begun"))
    with pytest.raises(IsADirectoryError):
        write_report(tmp_path, tmp_path)
