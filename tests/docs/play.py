"""Plays the snippets of one page in order, as a reader would: ``python play.py BLOCKS.json`` in an empty folder.

Python blocks share a namespace. Bash blocks go line by line. A plain ``preceptor …`` line runs the same entry point in
a process that is forked from one with torch loaded, which spares a page a few seconds for each of its commands; any
other line goes to bash.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LOADED = ("preceptor.pipeline", "preceptor.report", "preceptor.data.glyphs", "timm", "scipy.stats")
SHELL = re.compile(r"[|&;<>$`*?~(){}#!]|\\$")


def serve(requests: Connection) -> None:
    """Run commands in forked children, one after the other, and answer with their exit status."""
    while (words := requests.recv()) is not None:
        child = os.fork()
        if child == 0:
            os._exit(_command(words))
        requests.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _command(words: list[str]) -> int:
    from preceptor.cli import main

    sys.argv = words
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """Offsets and commands: continued lines joined, comments and empty lines left out."""
    pending, start = "", 0
    for offset, line in enumerate(text.splitlines()):
        start = start if pending else offset
        pending += line.rstrip("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        command = re.sub(r"(^|\s)#.*$", "", pending).strip()
        pending = ""
        if command:
            yield start, command


def run_line(command: str, call: Callable[[list[str]], int]) -> int:
    """The exit status of one line."""
    print(f"$ {command}", flush=True)
    if is_plain(command):
        return call(shlex.split(command))
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], check=False).returncode


def is_plain(command: str) -> bool:
    """Whether a line is one of our commands and needs no shell."""
    return command.startswith("preceptor ") and not SHELL.search(re.sub(r"'[^']*'", "", command))


def play(blocks: list[dict[str, Any]], call: Callable[[list[str]], int]) -> str | None:
    """Run all blocks; where one failed, the page and line of it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        page, line, text = block["page"], block["line"], block["text"]
        if block["language"] == "bash":
            for offset, command in shell_lines(text):
                if status := run_line(command, call):
                    return f"{page}:{line + offset}: exit status {status}"
            continue
        try:
            exec(compile("\n" * (line - 1) + text, page, "exec"), namespace)
        except Exception as error:
            traceback.print_exc()
            own = [
                entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == page
            ]
            at = error.lineno if isinstance(error, SyntaxError) else own[0] if own else line
            return f"{page}:{at}: {type(error).__name__}: {error}"
    return None


def main() -> None:
    """Play the blocks in the file that was named; status 1 and the place where one failed."""
    blocks = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.insert(0, os.getcwd())
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(there,))
    shell = [block["text"] for block in blocks if block["language"] == "bash"]
    if any(is_plain(command) for text in shell for _, command in shell_lines(text)):
        for module in LOADED:
            importlib.import_module(module)
        server.start()  # before any block has used torch, whose threads do not survive a fork

    def call(words: list[str]) -> int:
        here.send(words)
        return int(here.recv())

    failed = play(blocks, call)
    if server.pid is not None:
        here.send(None)
        server.join()
    if failed:
        sys.exit(f"FAILED {failed}")


if __name__ == "__main__":
    main()
