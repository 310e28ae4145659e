"""Links lead somewhere, and written pages are up to date."""

from __future__ import annotations

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
