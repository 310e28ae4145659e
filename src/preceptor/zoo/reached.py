"""A store that cannot be reached says so in a sentence."""

from __future__ import annotations

from typing import Any

from preceptor.core import PreceptorError


class Reached:
    """A store whose own kinds of failure (no credentials, no such bucket name, no network) become a sentence."""

    def __init__(self, filesystem: Any, url: str) -> None:
        self.filesystem, self.url = filesystem, url

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("filesystem", "url"):  # asked for before they are set, by pickle
            raise AttributeError(name)
        method = getattr(self.filesystem, name)

        def call(*values: Any, **options: Any) -> Any:
            try:
                return method(*values, **options)
            except (OSError, PreceptorError):
                raise
            except Exception as error:  # each store has exceptions of its own
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise PreceptorError(
                    f"the zoo {self.url} cannot be reached ({reason}); check the URL, your credentials and the network"
                ) from error

        return call
