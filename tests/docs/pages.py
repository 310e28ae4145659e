"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
RUN = ("python", "bash")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)")
COMMENT = re.compile(r"^<!--\s*(?:not run:\s*(?P<reason>.*?)|(?P<setup>demo|test) command)\s*-->$")


@dataclass(frozen=True)
class Block:
    """A fenced block: where its text starts, and why it is not run, if it is not."""

    page: str
    line: int  # of the first line inside the fence, counted from 1
    language: str
    text: str
    skipped: str | None

    @property
    def title(self) -> str:
        """Page and line, for test ids."""
        return f"{self.page}:{self.line}"


def name(path: Path) -> str:
    """How a page is called in tests."""
    return str(path.relative_to(ROOT))


def blocks(page: str, text: str) -> list[Block]:
    """All fenced blocks of a page in one of the languages that are run."""
    found: list[Block] = []
    lines = text.splitlines()
    index, note = 0, None
    while index < len(lines):
        fence = FENCE.match(lines[index])
        if fence is None:
            if lines[index].strip():
                note = COMMENT.match(lines[index].strip())
            index += 1
            continue
        start = index + 1
        index = next((at for at in range(start, len(lines)) if lines[at].strip() == "```"), None)  # type: ignore[assignment]
        if index is None:
            raise ValueError(f"{page}:{start}: the fence is never closed")
        if fence["language"] in RUN:
            body = textwrap.dedent("\n".join(lines[start:index]))
            found.append(Block(page, start + 1, fence["language"], body, _reason(note)))
        index, note = index + 1, None
    return found


def _reason(note: re.Match[str] | None) -> str | None:
    if note is None:
        return None
    return f"the {note['setup']} command" if note["setup"] else note["reason"]


def links(text: str) -> list[str]:
    """Relative targets of links and images outside code, without their anchors."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", prose) + re.findall(r"(?:src|href)=\"([^\"]+)\"", prose)
    return [target for target in targets if not re.match(r"[a-z]+:|//", target)]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    heads = re.findall(
        r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).replace(" ", "-") for head in heads}
