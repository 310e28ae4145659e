"""Ctrl-C at any moment of a command's life: one line, exit status 130, no traceback.

What comes before `main` is left out: while Python itself starts, a Ctrl-C is Python's affair.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

LINE = "preceptor: interrupted; what was finished is kept\n"


def listen() -> None:  # a shell's background job, in which tests may run, ignores Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ended(program: str, *arguments: str, before=listen) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True, text=True, preexec_fn=before, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("delay", [0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_after_so_many_seconds(delay: float, tmp_path: Path) -> None:
    """In the imports of the commands, then in those of torch, which take longer."""
    program = "from preceptor.cli import main; print('here', flush=True); main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "demo", "--out", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (130, LINE)


@pytest.mark.parametrize("place", [1, 2, 5, 20, 100, 300])
def test_at_an_import(place: int) -> None:
    program = """
        import builtins, os, signal, sys
        from preceptor.cli import main
        place, real, count = int(sys.argv.pop()), builtins.__import__, 0

        def counted(*arguments, **named):
            global count
            count += 1
            if count == place:
                os.kill(os.getpid(), signal.SIGINT)
            return real(*arguments, **named)

        builtins.__import__ = counted
        main()
    """
    assert ended(program, "--help", str(place)) == (130, "", LINE)


def test_main_is_there_before_anything_slow_is_imported() -> None:
    program = """
        import sys
        before = set(sys.modules)
        from preceptor.cli import main
        print(*sorted(set(sys.modules) - before))
    """
    assert ended(program) == (0, "__future__ preceptor preceptor.cli\n", "")


def test_while_torch_is_loaded_no_exception_meets_its_cpp(tmp_path: Path) -> None:
    """Which would abort: here a module of that name does."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: os.abort()\n"
    )
    program = """
        import sys
        import preceptor.cli

        sys.path.insert(0, sys.argv.pop())

        def app():
            import torch

        preceptor.cli.app = app
        preceptor.cli.main()
    """
    assert ended(program, str(tmp_path)) == (130, "", LINE)


HIDDEN = """
    import os, signal
    import preceptor.cli

    def app():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            pass
        raise RuntimeError("half imported")

    preceptor.cli.app = app
    preceptor.cli.main()
"""


def test_behind_another_error() -> None:
    """Numpy, interrupted while torch imports it, ends in a RecursionError that knows of no interrupt."""
    assert ended(HIDDEN) == (130, "", LINE)


def test_in_a_callback_that_drops_it() -> None:
    """As those are by which importlib clears its locks away."""
    program = """
        import os, signal, time, weakref
        import preceptor.cli

        class Thing: ...

        def app():
            for _ in range(3):
                thing = Thing()
                gone = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
                del thing
            time.sleep(30)

        preceptor.cli.app = app
        preceptor.cli.main()
    """
    assert ended(program) == (130, "", LINE)


def test_where_it_is_ignored_it_stays_ignored() -> None:
    status, _, errors = ended(HIDDEN, before=ignore)
    assert status == 1
    assert errors.endswith("RuntimeError: half imported\n")


def test_a_second_one_does_not_spoil_the_end() -> None:
    program = """
        import atexit, os, signal
        import preceptor.cli

        def again():
            atexit.register(os.kill, os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        preceptor.cli.app = again
        preceptor.cli.main()
    """
    assert ended(program) == (-signal.SIGINT, "", LINE)
