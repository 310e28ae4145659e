"""``preceptor cache``: what is kept of extracted features, and throwing it out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from preceptor.cli.console import emit_json, say, show_table

cache_app = typer.Typer(no_args_is_help=True, help="Look at or clear the cache of extracted features.")

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


@cache_app.command("show")
def show(json_output: JsonOption = False) -> None:
    """Show where the cache lies, its limit, and what is in it, the most recently used first.

    PRECEPTOR_CACHE sets the place and PRECEPTOR_CACHE_LIMIT (such as 5GB) the limit.

    Example: preceptor cache show
    """
    from preceptor.zoo.cache import FeatureCache

    cache = FeatureCache()
    entries = cache.entries()
    total = sum(entry.size for entry in entries)
    if json_output:
        rows = [asdict(entry) for entry in entries]
        emit_json({"location": str(cache.root), "limit": cache.limit, "bytes": total, "entries": rows})
        return
    say(
        f"{cache.root}: {len(entries)} entries, {total / 2**20:.1f} MiB of at most "
        f"{cache.limit / 2**20:.0f} MiB"
    )
    if entries:
        from rich.table import Table

        table = Table("teacher", "samples", "MiB", "last used", "key", box=None)
        for entry in entries:
            used = f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}"
            table.add_row(
                entry.teacher, str(entry.samples), f"{entry.size / 2**20:.1f}", used, entry.key[:12]
            )
        show_table(table)


@cache_app.command("clear")
def clear(json_output: JsonOption = False) -> None:
    """Throw out all extracted features; they are computed again when needed.

    Example: preceptor cache clear
    """
    from preceptor.zoo.cache import FeatureCache

    count = FeatureCache().clear()
    if json_output:
        emit_json({"cleared": count})
    else:
        say(f"cleared {count} entries")
