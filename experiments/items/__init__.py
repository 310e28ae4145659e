"""One module a table or figure.

Each has `NAME`, `TITLE`, `jobs(scale)` (its trainings, possibly none), `measure(lab)` where something is computed
besides, the paper's values as data, and `section(book, folder)`, the text and figures of its part of the page. Where
not all rows count, `counted(rows)` gives those that do.
"""

from __future__ import annotations

from types import ModuleType

from experiments.items import (
    few,
    fig03,
    fig05,
    fig06,
    fig07,
    fig08,
    fig09,
    fig10,
    search,
    seen,
    tab02,
    tab04,
    tab05,
    tab06,
    tab07,
    tab08,
    tab09,
    tab10,
    tab13,
)

ITEMS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        fig05, search, seen, few, fig07, tab08, tab09, tab02, fig03, fig06, tab13, fig08, fig09, fig10, tab10, tab04,
        tab06, tab05, tab07,
    )
}  # fmt: skip
