from __future__ import annotations

from pathlib import Path

from preceptor.distill.losses import METHODS
from preceptor.distill.losses.kd import KnowledgeDistillation
from preceptor.distill.losses.table import default_options, method_table

PAGE = Path(__file__).parents[3] / "docs" / "methods.md"


def test_the_docs_show_the_table_as_it_is():
    assert method_table() in PAGE.read_text(encoding="utf-8")


def test_every_method_is_described_in_the_docs():
    page = PAGE.read_text(encoding="utf-8")
    for name in METHODS:
        assert f"**{name}**" in page, name


def test_options_come_from_the_signature():
    assert default_options(KnowledgeDistillation) == {
        "temperature": 4.0,
        "weight": 0.9,
        "task_weight": 0.1,
        "standardize": False,
    }


def test_the_measured_part_has_its_markers():
    page = PAGE.read_text(encoding="utf-8")
    assert page.index("<!-- measured:begin -->") < page.index("<!-- measured:end -->")
