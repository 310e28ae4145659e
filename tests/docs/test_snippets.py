"""Every snippet of the docs runs, or says why it is not run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.docs import play
from tests.docs.pages import PAGES, ROOT, Block, blocks, name

BLOCKS = {name(path): blocks(name(path), path.read_text(encoding="utf-8")) for path in PAGES}
PLAYED = [page for page, found in BLOCKS.items() if any(block.skipped is None for block in found)]
SKIPPED = [block for found in BLOCKS.values() for block in found if block.skipped is not None]


def run_blocks(found: list[Block], folder: Path) -> subprocess.CompletedProcess[str]:
    plan = folder / "blocks.json"
    plan.write_text(json.dumps([asdict(block) for block in found if block.skipped is None]))
    work = folder / "work"
    work.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PRECEPTOR_CACHE": str(folder / "cache"),
        "PYTHONPATH": f"{work}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, play.__file__, str(plan)],
        cwd=work, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("page", PLAYED)
def test_page_runs(page: str, tmp_path: Path) -> None:
    done = run_blocks(BLOCKS[page], tmp_path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("block", SKIPPED, ids=lambda block: f"{block.title} not run: {block.skipped}")
def test_skipped_block_says_why(block: Block) -> None:
    assert block.skipped, f"{block.title}: say why this block is not run"


def test_readme_has_its_two_commands_marked() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if "```bash" not in text:
        pytest.skip("the README has no commands")
    for marker in ("<!-- demo command -->", "<!-- test command -->"):
        assert text.count(marker) == 1, f"README.md: {marker} must stand before one block"
    setup = [
        block.skipped
        for block in BLOCKS["README.md"]
        if block.skipped in ("the demo command", "the test command")
    ]
    assert sorted(setup) == ["the demo command", "the test command"]


PAGE = """\
Text.

```python
value = 2
```

<!-- not run: needs a network -->
```bash
false
```

```bash
# a comment
test \\
    1 = 1
echo $((1 + 1)) > number.txt   # kept
preceptor --help
```

```text
not code
```

```python
from pathlib import Path
assert Path("number.txt").read_text() == f"{value}\\n"
```
"""


def test_blocks_are_found_with_their_lines() -> None:
    found = blocks("page.md", PAGE)
    assert [(block.line, block.language, block.skipped) for block in found] == [
        (4, "python", None), (9, "bash", "needs a network"), (13, "bash", None), (25, "python", None),
    ]  # fmt: skip
    assert blocks("page.md", "<!-- demo command -->\n```bash\nx\n```")[0].skipped == "the demo command"
    assert (
        blocks("page.md", "<!-- not run: far away -->\n\nWords between.\n\n```bash\nx\n```")[0].skipped
        is None
    )
    with pytest.raises(ValueError, match=r"page\.md:1: the fence is never closed"):
        blocks("page.md", "```bash\nx\n")


def test_blocks_share_a_namespace_and_a_folder(tmp_path: Path) -> None:
    done = run_blocks(blocks("page.md", PAGE), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage: preceptor" in done.stdout


@pytest.mark.parametrize(
    ("good", "bad", "place"),
    [
        ("1 = 1", "1 = 2", "page.md:14: exit status 1"),
        ("--help", "no-such-command", "page.md:17: exit status 2"),
        ("assert Path", "assert not Path", "page.md:26: AssertionError: "),
        ("value = 2", "value = = 2", "page.md:4: SyntaxError: "),
        ("value = 2", "int('two')", "page.md:4: ValueError: "),
    ],
)
def test_failure_names_page_and_line(
    good: str, bad: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [asdict(block) for block in blocks("page.md", PAGE.replace(good, bad)) if block.skipped is None]
    failed = play.play(found, lambda words: 0 if words == ["preceptor", "--help"] else 2)
    assert failed is not None
    assert failed.startswith(place)


@pytest.mark.parametrize(
    ("line", "forked"),
    [("preceptor rank zoo data", True), ("preceptor rank zoo 'glyphs:digits?per_class=4'", True),
     ("preceptor rank zoo data --json > a.json", False), ("preceptor rank zoo $DATA", False), ("true", False)],
)  # fmt: skip
def test_only_plain_commands_are_forked(line: str, forked: bool) -> None:
    called: list[list[str]] = []
    assert play.is_plain(line) == forked
    if forked:
        assert play.run_line(line, lambda words: len(called.append(words) or called)) == 1
        assert called == [line.replace("'", "").split()]
