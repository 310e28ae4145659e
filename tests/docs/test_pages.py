"""Links lead somewhere, and written pages are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, name


def test_every_page_is_on_the_map() -> None:
    map_page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    named = {target.partition("#")[0] for target in links(map_page)}
    missing = {path.name for path in PAGES if path.parent.name == "docs"} - named - {"index.md"}
    assert not missing, f"docs/index.md does not name {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        aim = (page.parent / file).resolve() if file else page
        assert aim.exists(), f"{name(page)}: {target} leads nowhere"
        if anchor and aim.suffix == ".md":
            found = anchors(aim.read_text(encoding="utf-8"))
            assert anchor in found, (
                f"{name(page)}: {aim.name} has no heading {anchor}; it has {sorted(found)}"
            )


def test_links_are_found_outside_code_only() -> None:
    text = (
        'See [a](a.md#x "title") and ![b](b.png), not `[c](c.md)` nor [d](https://d).\n'
        '```\n[e](e.md)\n```\n<img src="f.png">'
    )
    assert links(text) == ["a.md#x", "b.png", "f.png"]


def test_written_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("benchmark", ["sinkhorn", "ranking"])
def test_tables_of_benchmarks_are_those_of_the_kept_numbers(benchmark: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "performance.md"
    copy = tmp_path / page.name
    copy.write_bytes(page.read_bytes())
    lines = [
        "import sys, pathlib; sys.path.insert(0, 'benchmarks')",
        "import common; common.PAGE = pathlib.Path(sys.argv[1])",
        f"import {benchmark}; sys.argv = ['', '--render']; {benchmark}.main()",
    ]
    subprocess.run([sys.executable, "-c", "; ".join(lines), copy], check=True, cwd=ROOT)
    assert copy.read_bytes() == page.read_bytes()


def test_no_kept_command_names_a_folder_of_somebodys_machine() -> None:
    for path in (ROOT / "results").rglob("*.json*"):
        found = re.findall(r'"command": "([^"]*)"', path.read_text(encoding="utf-8"))
        assert not [command for command in found if re.search(r"(^|[ =])/", command)], path.name


def test_the_number_of_methods_is_what_a_user_can_choose() -> None:
    from preceptor.distill.losses import METHODS
    from preceptor.distill.schedules import SCHEDULES

    stages = {"refilled-embedding", "refilled-classifier", "sftn-teacher"}
    assert stages <= set(METHODS)
    count = len({*METHODS, *SCHEDULES} - stages - {"none"})
    for page in ("README.md", "CHANGELOG.md"):
        assert re.findall(r"(\d+) methods", (ROOT / page).read_text(encoding="utf-8")) == [str(count)]
    assert count == 19, "docs/methods.md says nineteen"


@pytest.mark.parametrize(
    ("benchmark", "kept", "page"),
    [
        ("counts", "counts", "when-it-helps.md"),
        ("choice", "choice", "choosing.md"),
        ("sizes", "sizes", "choosing.md"),
        ("demo", "demo", "when-it-helps.md"),
        ("seen", "seen", "when-it-helps.md"),
        ("seen", "seen_patient", "when-it-helps.md"),
        ("extraction", "extraction", "performance.md"),
        ("photographs", "photographs", "when-it-helps.md"),
        ("methods", "methods", "methods.md"),
        ("methods", "methods_patient", "methods.md"),
        ("methods", "methods_mixed", "methods.md"),
    ],
)
def test_tables_on_pages_are_those_of_the_kept_numbers(benchmark: str, kept: str, page: str) -> None:
    lines = [
        "import sys; sys.path.insert(0, 'benchmarks')",
        f"import common, {benchmark}; print({benchmark}.table(common.kept('{kept}')))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(lines)], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() in (ROOT / "docs" / page).read_text(encoding="utf-8")
