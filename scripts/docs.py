"""Write docs/cli.md from the commands themselves.

python scripts/docs.py            writes it
python scripts/docs.py --check    says whether it is out of date, and exits with 1 if so
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from preceptor.cli import app

ROOT = Path(__file__).parents[1]
WIDTH = 100
CLI_HEAD = """\
# The command line

Written by `python scripts/docs.py` from the commands themselves; a test checks that it is up to date.

Every command ends with status 0 (done), 1 (failed: one line on standard error says what, and how to mend it), 2
(wrong call) or 130 (Ctrl-C, which leaves what is finished). With `--json` standard output holds one JSON document.
Progress bars show on a terminal only. `preceptor --install-completion` sets up completion for your shell,
`preceptor --version` says the version.
"""


def command_page() -> str:
    """The whole of docs/cli.md."""
    sections = [CLI_HEAD]
    for name, callback in commands(app):
        sections.append(f"## preceptor {name}\n\n```text\n{help_text(name, callback)}```\n")
    return "\n".join(sections)


def commands(group: typer.Typer, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and functions of all commands, groups of commands last."""
    for command in group.registered_commands:
        callback = command.callback
        yield prefix + (command.name or callback.__name__.replace("_", "-")), callback  # type: ignore[union-attr]
    for nested in group.registered_groups:
        yield from commands(nested.typer_instance, f"{prefix}{nested.name} ")  # type: ignore[arg-type]


def help_text(name: str, callback: Any) -> str:
    """Usage, description, arguments and options of one command as plain text."""
    parameters = inspect.signature(callback, eval_str=True).parameters
    read = [describe(parameter) for parameter in parameters.values()]
    arguments = [entry for entry in read if not entry[0].startswith("-")]
    options = [entry for entry in read if entry[0].startswith("-")]
    required = [entry[0] for entry in options if entry[2]]
    usage = " ".join(["preceptor", name, *(entry[0] for entry in arguments), *required, "[OPTIONS]"])
    parts = [f"Usage: {usage}\n\n{wrapped(inspect.getdoc(callback) or '')}\n"]
    for title, entries in (("Arguments", arguments), ("Options", options)):
        if entries:
            parts.append(f"{title}:\n" + "".join(row(left, right) for left, right, _ in entries))
    return "\n".join(parts)


def describe(parameter: inspect.Parameter) -> tuple[str, str, bool]:
    """How a parameter is written, what it does, and whether it is an option that must be given."""
    assert get_origin(parameter.annotation) is Annotated, f"{parameter} carries no help"
    kind, *notes = get_args(parameter.annotation)
    info = next(note for note in notes if isinstance(note, ArgumentInfo | OptionInfo))
    kinds = [part for part in alternatives(kind) if part is not NoneType]
    many = any(get_origin(part) is list for part in kinds)
    default = parameter.default
    if isinstance(info, ArgumentInfo):
        name = info.metavar or parameter.name.upper()
        shown = name if default is inspect.Parameter.empty else f"[{name}]"
        return shown + "..." * many, info.help or "", False
    names = declared(info) or [f"--{parameter.name.replace('_', '-')}"]
    if kinds == [bool] and not declared(info):
        names = [f"{names[0]}/--no-{names[0][2:]}"]
    value = "" if kinds == [bool] else " " + (info.metavar or value_name(kinds[0])) + " ..." * many
    text = info.help or ""
    if not any(default is nothing for nothing in (None, False, inspect.Parameter.empty)):
        text = f"{text} [default: {'yes' if default is True else default}]".strip()
    return ", ".join(names) + value, text, default is inspect.Parameter.empty


def declared(info: OptionInfo) -> list[str]:
    """The names an option was given; typer keeps the first of them as its default inside Annotated."""
    first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []
    return [*first, *(info.param_decls or ())]


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that a parameter may have."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def value_name(kind: Any) -> str:
    """What stands for an option's value."""
    inner = get_args(kind)[0] if get_args(kind) else kind
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(inner, "TEXT")


def wrapped(text: str) -> str:
    """Paragraphs brought to the page's width."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(textwrap.fill(part, WIDTH) for part in paragraphs)


def row(left: str, right: str) -> str:
    """One line of a list of options, or several."""
    indent = 30
    head = f"  {left}"
    lines = textwrap.wrap(right, WIDTH - indent) or [""]
    if len(head) >= indent - 1 and right:
        lines = ["", *lines]
    text = [f"{head:<{indent}}{lines[0]}".rstrip()]
    return "\n".join([*text, *(" " * indent + line for line in lines[1:])]) + "\n"


def pages() -> dict[Path, str]:
    """Every written page with what it should hold."""
    return {ROOT / "docs/cli.md": command_page()}


def main() -> int:
    """Write the pages, or check them."""
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date; run python scripts/docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
