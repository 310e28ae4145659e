"""Tables of several runs name all of them, and every kept row has its evidence."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import common, rank_scale
from experiments import results

KEPT = sorted((results.ROOT / "results" / "benchmarks").glob("*.json"))


def proof(command, date="2026-11-15T10:00:00+00:00", **rest):
    return {"command": command, "commit": "a" * 40, "date": date, "hardware": "a machine", "threads": 1,
            "versions": {"torch": "2.15.0"}, **rest}  # fmt: skip


def test_one_run_is_named_with_its_machine_and_day():
    assert (
        common.told([proof("python a.py")])
        == "`python a.py`, a machine, 1 threads, torch 2.15.0, 2026-11-15."
    )


def test_several_runs_are_all_named_with_how_many_rows_they_made():
    other = proof("python a.py --only `b`", "2026-11-16T10:00:00+00:00", threads=2)
    lost = {"command": None, "commit": None, "date": "2026-11-14T10:00:00+00:00"}
    assert common.told([other, proof("python a.py"), proof("python a.py"), lost]) == (
        "Made by `python a.py` (2 rows, 2026-11-15), `` python a.py --only `b` `` (1 row, 2026-11-16), a command that "
        "was not kept (1 row, 2026-11-14): a machine, 2 threads, torch 2.15.0; a machine, 1 threads, torch 2.15.0."
    )


def test_evidence_is_found_at_the_rows_by_their_names_or_for_all():
    first, second = proof("a"), proof("b")
    assert common.proofs_of({"rows": [1], "evidence": first}) == [first]
    assert common.proofs_of({"results": {}, "evidence": {"x": first, "y": second}}) == [first, second]
    rows = {"rows": [{"evidence": first}], "others": [{"evidence": second}], "limit": 3}
    assert common.proofs_of(rows) == [first, second]


def test_rows_of_other_cells_stay_with_the_evidence_that_they_had(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(common, "evidence", lambda: proof("new"))
    old = [{"count": count, "recipe": recipe, "value": 1} for count in (5, 10) for recipe in ("a", "b")]
    common.write("trial", {"rows": old, "evidence": proof("old")})
    again = [{"count": count, "recipe": recipe, "value": 2} for count, recipe in ((10, "b"), (20, "b"))]
    common.keep_rows("trial", again, ("count", "recipe"))
    data = common.kept("trial")
    found = [(row["count"], row["recipe"], row["value"], row["evidence"]["command"]) for row in data["rows"]]
    assert found == [(5, "a", 1, "old"), (5, "b", 1, "old"), (10, "a", 1, "old"), (10, "b", 2, "new"),
                     (20, "b", 2, "new")]  # fmt: skip
    assert [one["command"] for one in common.proofs_of(data)] == ["old"] * 3 + ["new"] * 2
    common.keep_rows("first", again, ("count", "recipe"))
    assert [row["value"] for row in common.kept("first")["rows"]] == [2, 2]
    common.keep_rows("trial", again[:1], ("count", "recipe"))
    assert [one["command"] for one in common.proofs_of(common.kept("trial"))] == ["old"] * 3 + ["new"] * 2


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_kept_row_has_its_evidence(path):
    data = json.loads(path.read_text())
    proofs = common.proofs_of(data)
    assert proofs
    assert all(one["command"] or one["note"] for one in proofs)
    named = data.get("results") or data.get("accuracies")
    if "commit" not in data.get("evidence", {"commit": None}):
        assert list(data["evidence"]) == list(named)


def test_parts_that_were_left_out_stay_with_their_evidence():
    earlier = {
        "growth": [{"teachers": 5, "evidence": proof("old")}],
        "prefilter": [{"metric": name, "evidence": proof("old")} for name in ("leep", "bridge")],
    }
    found = {"prefilter": [{"metric": "bridge", "evidence": proof("new")}]}
    whole = rank_scale.merged(earlier, found)
    assert whole["growth"] == earlier["growth"]
    assert [(row["metric"], row["evidence"]["command"]) for row in whole["prefilter"]] == [
        ("bridge", "new"),
        ("leep", "old"),
    ]


def test_the_cores_are_those_of_the_machine_that_measured(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 99)
    rows = [{"workers": 1, "speed_up": 1.0, "load": 0.5, "evidence": proof("a", cores=7)}]
    assert "on 7 cores (load 0.5)" in rank_scale.table({"speed_up": rows})


# Benchmarks import their neighbours by name, as scripts do, so they run in a process of their own.
SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, "benchmarks")
import common
common.PAGE = pathlib.Path(sys.argv[1])
import characters, distill, methods, rank_scale, sinkhorn_gpu, training_gpu
sys.argv = ["", "--render"]
for module in (distill, rank_scale, sinkhorn_gpu, training_gpu):
    module.main()
tables = {name: module.table(common.kept(name)) for name, module in
          {"methods": methods, "methods_patient": methods, "characters": characters}.items()}
earlier = {"results": {"none": 1, "kd": 1}, "evidence": {"none": "old", "kd": "old"}}
found = {"results": {"none": 2, "rkd": 2}, "evidence": {"none": "new", "rkd": "new"}}
characters.ARMS = {"b": (), "a": ()}
some = lambda names, value: {part: dict.fromkeys(names, value) for part in ("accuracies", "evidence")}
merged = methods.merged(earlier, found), characters.merged(some("ab", 1), some("a", 2))
print(json.dumps({"tables": tables, "merged": merged}))
"""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    page = results.ROOT / "docs" / "performance.md"
    copy = tmp_path_factory.mktemp("pages") / page.name
    copy.write_bytes(page.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, copy], check=True, cwd=results.ROOT, capture_output=True, text=True
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "page": copy.read_text(), "before": page.read_text()}


def test_rows_made_anew_bring_their_evidence_and_the_others_keep_theirs(rendered):
    methods, characters = rendered["merged"]
    assert methods["results"] == {"none": 2, "kd": 1, "rkd": 2}
    assert methods["evidence"] == {"none": "new", "kd": "old", "rkd": "new"}
    for part in ("accuracies", "evidence"):
        assert list(characters[part].items()) == [("b", 1), ("a", 2)]


def test_the_page_has_the_kept_numbers_and_what_made_them(rendered):
    assert rendered["page"] == rendered["before"]


@pytest.mark.parametrize(
    ("kept", "page"),
    [("methods", "methods.md"), ("methods_patient", "methods.md"), ("characters", "choosing.md")],
)
def test_merged_tables_are_those_of_the_kept_numbers(rendered, kept, page):
    assert rendered["tables"][kept].strip() in (results.ROOT / "docs" / page).read_text()


SCRIPTS = sorted(
    path for path in (results.ROOT / "benchmarks").glob("*.py") if "def main" in path.read_text()
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_flags_have_one_spelling(path):
    text = path.read_text()
    assert not [flag for flag in ("--show", "--dry-run", "--no-run") if flag in text]
    if path.stem != "all":
        shares = "arguments(__doc__)" in text  # of draws.py, which has it
        assert (
            shares
            or '"--render", action="store_true", help="only write the table from the kept numbers"' in text
        )
