"""What a ranking rests on: command, versions, seed, hardware, time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from preceptor.distill.evidence import circumstances
from preceptor.rank.journal import code_version


def gather(settings: Mapping[str, Any], device: str, seconds: float) -> dict[str, Any]:
    """The evidence of one ranking.

    Args:
        settings: what the caller asked for; what was not asked for (None) is left out.
        device: where the networks ran.
        seconds: wall-clock time of the whole ranking.
    """
    asked = {name: value for name, value in settings.items() if value is not None}
    return {**circumstances(torch.device(device), 1), "code": code_version(), "seconds": seconds, **asked}
