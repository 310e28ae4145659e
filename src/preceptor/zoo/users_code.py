"""Running the user's own code (``python:`` teachers): it can neither end the program nor write into its output."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import Protocol

from preceptor.core import PreceptorError


class Origin(Protocol):
    """Where a teacher comes from: a `Request`, or the `Source` of a card."""

    @property
    def kind(self) -> str:
        """Such as ``timm`` or ``python``."""

    @property
    def reference(self) -> str:
        """What follows the kind."""


def code_of(origin: Origin) -> AbstractContextManager[None]:
    """Around whatever runs code of this origin: guards the user's own, and leaves the others' alone."""
    return _guarded(origin.reference) if origin.kind == "python" else nullcontext()


def what(error: BaseException) -> str:
    """What a user's own code raised, and where."""
    places = traceback.extract_tb(error.__traceback__)
    library = (sysconfig.get_path("stdlib"), "<frozen")
    place = next((frame for frame in reversed(places) if not frame.filename.startswith(library)), places[-1])
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{said} ({os.path.basename(place.filename)}, line {place.lineno})"


@contextmanager
def _guarded(reference: str) -> Iterator[None]:
    try:
        with redirect_stdout(sys.stderr):  # standard output may be a JSON document
            yield
    except SystemExit as stop:
        # Of sys.exit, or of a command line that is parsed while the module is imported.
        raise PreceptorError(f"python:{reference} would end the program: {what(stop)}; mend it") from stop
