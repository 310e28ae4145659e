"""The sizes beyond which the zoo refuses to read: what a hostile or broken file could otherwise cost."""

from __future__ import annotations

from preceptor.core import PreceptorError

MAX_FILE_BYTES = 16 * 2**30  # one file of a teacher
MAX_CARD_BYTES = 32 * 2**20
MAX_CLASSES = 100_000
MAX_CLASS_NAME = 1_000  # characters
MAX_FEATURES = 1_000_000
MAX_IMAGE_SIDE = 4_096  # what a card may ask images to be resized to
MAX_CHANNELS = 256


def check_size(what: str, size: int, limit: int) -> None:
    """Refuse `size` bytes above `limit`."""
    if size > limit:
        raise PreceptorError(
            f"{what} has {size:,} bytes, above the limit of {limit:,}: it is broken, hostile or no teacher"
        )
