"""What a hostile file would hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Attack:
    """Touches a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)
