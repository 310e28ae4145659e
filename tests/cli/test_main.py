"""The command line as a whole: help, start-up time, exit codes, Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from preceptor.cli import app


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if not inner:
        return [path]
    return [found for name, child in inner.items() for found in commands(child, (*path, name))]


COMMANDS = commands(typer.main.get_command(app))


def preceptor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preceptor", *arguments], capture_output=True, text=True, check=False
    )


def test_the_commands_of_the_design_are_there() -> None:
    expected = {"demo", "doctor", "train", "rank", "distill", "run", "predict", "export", "report"}
    assert expected <= {path[0] for path in COMMANDS}
    assert {("zoo", verb) for verb in ("add", "list", "show", "verify", "remove")} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert f"Example: preceptor {' '.join(path)}" in " ".join(result.output.split())
    assert "--json" in result.output


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_every_word_of_every_option(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "1000"}).output
    command = functools.reduce(lambda group, name: group.commands[name], path, typer.main.get_command(app))
    for parameter in command.params:
        assert (parameter.help or "") in shown, parameter.name


def test_the_root_help_tells_the_story_in_the_order_of_use() -> None:
    shown = preceptor("--help").stdout
    places = [
        shown.index(f"│ {name} ")
        for name in ("demo", "zoo", "train", "rank", "run", "distill", "predict", "report")
    ]
    assert places == sorted(places)


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = textwrap.dedent("""
        import sys
        import preceptor.cli
        sys.argv = ["preceptor", "--help"]
        try:
            preceptor.cli.main()
        except SystemExit:
            pass
        heavy = {"torch", "numpy", "timm", "matplotlib", "pydantic", "jinja2"} & set(sys.modules)
        assert not heavy, heavy
    """)
    empty = min(cpu_seconds("pass") for _ in range(3))
    full = min(cpu_seconds(program) for _ in range(3))
    assert full - empty < 0.5  # 0.25 on an idle machine; a busy one slows every instruction down


def cpu_seconds(program: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_a_failure_is_one_line_and_exit_1(tmp_path: Path) -> None:
    done = preceptor("zoo", "list", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        done.stderr == f"preceptor: there is no zoo at '{tmp_path}/nowhere'; `preceptor zoo add` makes one\n"
    )


@pytest.mark.parametrize("beneath", ["", "/deeper"])
def test_a_file_where_a_folder_is_needed_is_a_sentence(tmp_path: Path, beneath: str) -> None:
    (tmp_path / "taken").write_text("a file")
    out = f"{tmp_path}/taken{beneath}"
    done = preceptor("demo", "--out", out)
    assert done.returncode == 1
    assert done.stderr.startswith(f"preceptor: '{out}' cannot be used (")
    assert done.stderr.endswith("a file stands where a folder is needed: name another folder\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("rank",), ("demo", "--seeds", "0"), ("rank", "a", "b", "--no-such")]
)
def test_a_wrong_call_is_exit_2(arguments: tuple[str, ...]) -> None:
    done = preceptor(*arguments)
    assert done.returncode == 2
    assert "Usage" in done.stderr
    assert done.stdout == ""


def test_ctrl_c_is_one_line_and_leaves_what_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "preceptor", "demo", "--out", str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def listen() -> None:  # a shell's background job, in which tests may run, ignores Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, **pipes, preexec_fn=listen) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "training letters" in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "preceptor: interrupted; what was finished is kept\n"


def test_a_terminal_without_arrows_gets_a_sign_for_them() -> None:
    script = "import preceptor.cli as cli; cli.app = lambda: print('O \u2192 0'); cli.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, b"O ? 0")


def test_the_version_is_the_packages() -> None:
    import preceptor as package

    found = preceptor("--version")
    assert (found.returncode, found.stdout) == (0, f"preceptor {metadata.version('preceptor')}\n")
    assert package.__version__ == metadata.version("preceptor")
