"""What a hostile file would hold."""

from __future__ import annotations

import os

SPRUNG = "/tmp/preceptor-was-fooled"


class Trap:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {SPRUNG}",)
