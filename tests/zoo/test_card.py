"""The card's JSON schema in the docs is that of the code."""

from __future__ import annotations

import json
from pathlib import Path

from preceptor.zoo import Card, Zoo

SCHEMA = Path(__file__).parents[2] / "docs" / "card.schema.json"


def test_the_schema_in_the_docs_is_up_to_date() -> None:
    """After a change: python -c "from tests.zoo.test_card import write; write()"."""
    assert json.loads(SCHEMA.read_text()) == Card.model_json_schema()


def test_a_stored_card_has_the_fields_of_the_schema(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    stored = json.loads((Path(zoo.url) / "a" / "card.json").read_text())
    schema = json.loads(SCHEMA.read_text())
    assert set(schema["required"]) <= set(stored) == set(schema["properties"])


def write() -> None:
    SCHEMA.write_text(json.dumps(Card.model_json_schema(), indent=2) + "\n")
