"""The command line. Thin: each command parses, calls the library, and shows what came back.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once; and nothing at all before
`main` watches for Ctrl-C, so that one that comes early ends without a traceback, too.
"""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False  # the name that type checkers know; to import typing takes milliseconds
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from preceptor.cli.commands import app

__all__ = ["app", "main"]

INTERRUPTED = 130  # what a shell reports of a program that SIGINT ended; typer ends with it, without a word
_PRESSED: list[int] = []  # the Ctrl-C of this process
_DROPPED: list[bool] = []  # whether one was dropped and is to come again


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from preceptor.cli.commands import app

    return app


def main() -> None:
    """Entry point: 0 done, 1 failed (one line says what and how to fix it), 2 wrong call, 130 interrupted."""
    try:
        _watch()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a code page without an arrow must not cost a ranking
                stream.reconfigure(errors="replace")
        from preceptor.cli import app

        app()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as stop:
        if stop.code != INTERRUPTED:
            raise
        _interrupted()
    except Exception as error:
        if _PRESSED:  # a library that is interrupted while it is imported may raise anything
            _interrupted()
        _explain(error)
        raise


def _watch() -> None:
    """Note each Ctrl-C, where it is not ignored, as under nohup, or somebody else's."""
    import signal
    from contextlib import suppress

    _PRESSED.clear()
    with suppress(ValueError):  # not in the main thread, which alone gets signals
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _press)
            sys.unraisablehook = _raised_again(sys.unraisablehook)


def _press(number: int, frame: Any) -> NoReturn:
    _PRESSED.append(number)
    # An exception that meets torch's C++ while that is being loaded aborts the process; nothing has begun by then.
    if getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False):
        import os

        try:
            _interrupted()
        finally:
            os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _raised_again(before: Any) -> Any:
    """The hook `before`, but a Ctrl-C that Python drops, as in the callback of a weak reference, comes once more."""
    import _thread

    main_thread = _thread.get_ident()

    def hook(dropped: Any) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            if not _DROPPED:  # one is enough, and a second one after it would end the process without a word
                _DROPPED.append(True)
                _thread.start_new_thread(_press_soon, (main_thread,))
        else:
            before(dropped)

    return hook


def _press_soon(main_thread: int) -> None:
    import _thread
    import signal
    import time

    time.sleep(0.01)  # at once it would come in the hook, where it is dropped again
    if not _DROPPED:
        return
    _DROPPED.clear()
    if hasattr(signal, "pthread_kill"):  # a true signal, which also ends a wait
        signal.pthread_kill(main_thread, signal.SIGINT)
    else:  # on Windows
        _thread.interrupt_main()


def _interrupted() -> NoReturn:
    import signal
    from contextlib import suppress

    _DROPPED.clear()
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends it at once
    _end("interrupted; what was finished is kept", INTERRUPTED)


def _explain(error: Exception) -> None:
    """Say what went wrong and end, unless it is nothing that a user could mend."""
    from preceptor.core import PreceptorError
    from preceptor.files import explain

    if isinstance(error, PreceptorError):
        _end(str(error), 1)
    if isinstance(error, OSError):
        _end(explain(error), 1)


def _end(sentence: str, status: int) -> NoReturn:
    if sys.stderr is not None:  # it is where the caller closed it
        print(f"preceptor: {' '.join(sentence.splitlines())}", file=sys.stderr)
    sys.exit(status)
