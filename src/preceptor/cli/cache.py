"""``preceptor cache``: what is kept because it can be made again, and throwing it out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import typer

from preceptor.cli.console import emit_json, say, show_table
from preceptor.cli.options import AsJson
from preceptor.wording import counted

cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look at or clear the cache.")


@cache_app.command("show")
def show(as_json: AsJson = False) -> None:
    """Show where the cache lies, what its parts hold, and the extracted features, the most recently used first.

    PRECEPTOR_CACHE sets the place and PRECEPTOR_CACHE_LIMIT (such as 5GB) the limit for features.

    Example: preceptor cache show
    """
    from preceptor.files import cache_folder
    from preceptor.zoo.cache import FeatureCache
    from preceptor.zoo.cache_parts import PARTS, measure_parts

    cache, parts = FeatureCache(), measure_parts(cache_folder())
    entries = cache.entries()
    total = sum(part.bytes for part in parts.values())
    if as_json:
        rows = [asdict(entry) for entry in entries]
        about = {name: asdict(part) for name, part in parts.items()}
        place = {"location": str(cache_folder()), "limit": cache.limit, "bytes": total}
        emit_json({**place, "parts": about, "entries": rows})
        return
    say(f"{cache_folder()}: {total / 2**20:.1f} MiB")
    for name, part in parts.items():
        say(f"  {name:<8} {part.bytes / 2**20:8.1f} MiB  {PARTS[name]}")
    kept = sum(entry.size for entry in entries) / 2**20
    held = counted(len(entries), "entry", "entries")
    say(f"features: {held}, {kept:.1f} MiB of at most {cache.limit / 2**20:.0f} MiB")
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
def clear(as_json: AsJson = False) -> None:
    """Throw out all parts of the cache; what was in them is made again when needed.

    What another process is at work on is left.

    Example: preceptor cache clear
    """
    from preceptor.files import cache_folder
    from preceptor.zoo.cache_parts import clear_parts

    done = clear_parts(cache_folder())
    count = sum(done.parts.values())
    if as_json:
        emit_json({"cleared": count, "parts": done.parts, "in_use": done.in_use})
        return
    named = ", ".join(f"{gone} of {name}" for name, gone in done.parts.items() if gone)
    say(f"cleared {counted(count, 'entry', 'entries')}" + (f": {named}" if named else ""))
    if done.in_use:
        say(f"left {counted(done.in_use, 'student')} that another process is training")
