"""Damage to a stored teacher is found, and a card that lies is not believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preceptor.core import PreceptorError
from preceptor.zoo import Zoo
from preceptor.zoo.card import CARD_FILE
from preceptor.zoo.weights import parse_safetensors, to_safetensors
from tests.zoo.tampering import altered, damage


def test_verify_finds_every_kind_of_damage(any_zoo: Zoo, run: Path) -> None:
    card = any_zoo.add(f"run:{run}", name="a")
    data = any_zoo.storage.read("a", "weights.safetensors", 10**9)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    damage(any_zoo, "a", "weights.safetensors", flipped)
    assert any_zoo.verify("a") == [
        "a/weights.safetensors is not the file that was added (its sum differs); "
        "remove the teacher and add it again"
    ]
    with pytest.raises(PreceptorError, match="its sum differs"):
        any_zoo.load("a")
    damage(any_zoo, "a", "weights.safetensors", None)
    assert "a/weights.safetensors is missing" in any_zoo.verify("a")[0]
    damage(any_zoo, "a", CARD_FILE, b'{"schema_version": 1}')
    assert "the card of 'a' is not valid at name" in any_zoo.verify("a")[0]
    assert any_zoo.listing() == [{"name": "a", "problem": any_zoo.verify("a")[0]}]
    damage(any_zoo, "a", CARD_FILE, card.model_copy(update={"name": "b"}).model_dump_json().encode())
    assert "the card in folder 'a' is for 'b'" in any_zoo.verify("a")[0]


def test_verify_compares_a_forward_pass_with_the_recorded_one(zoo: Zoo, run: Path) -> None:
    zoo.add(f"run:{run}", name="a")
    state = parse_safetensors(zoo.storage.read("a", "weights.safetensors", 10**9), "w")
    state["classifier.bias"] += 0.1
    altered(zoo, {"weights.safetensors": to_safetensors(state)})
    (problem,) = zoo.verify("x")
    assert "its logits are not those recorded when it was added: they differ by 0.1" in problem


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"classes": ["ant", "bee"]}, "does not fit run:run.*classifier.weight is"),
        ({"feature_size": 7}, "says 3 classes and 7 features, its weights have 3 and 16"),
        ({"centers_source": "stored"}, "names no centers.safetensors"),
        ({"schema_version": 2}, "not valid at schema_version"),
        ({"surprise": 1}, "not valid at surprise"),
        ({"classes": ["ant", "bee", "bee"]}, "'bee' comes twice"),
        ({"classes": []}, "0 classes came"),
        ({"head": {"path": "conv", "reduction": "none"}}, "names layer 'conv'"),
        ({"accuracy": 1.5}, "not valid at accuracy"),
    ],
)
def test_a_card_that_does_not_fit_its_weights_is_refused(
    zoo: Zoo, run: Path, changes: dict, reason: str
) -> None:
    zoo.add(f"run:{run}", name="a")
    altered(zoo, {}, **changes)
    with pytest.raises(PreceptorError, match=reason):
        zoo.load("x")
    assert zoo.verify("x") != []


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd", "sub/file", ".claim", "card.json"])
def test_a_card_cannot_point_out_of_its_folder(zoo: Zoo, run: Path, file: str) -> None:
    card = json.loads(zoo.add(f"run:{run}", name="a").model_dump_json())
    card["files"][file] = card["files"]["weights.safetensors"]
    damage(zoo, "a", CARD_FILE, json.dumps(card).encode())
    with pytest.raises(PreceptorError, match="not valid at files"):
        zoo.load("a")
