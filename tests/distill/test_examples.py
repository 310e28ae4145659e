from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plain_loop() -> None:
    assert load("plain_loop").main() > 0.9


@pytest.mark.filterwarnings("ignore")  # what the Trainer warns of is not ours
def test_hugging_face_trainer() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    assert load("hugging_face_trainer").main() > 0.9


@pytest.mark.filterwarnings("ignore")
def test_lightning_module() -> None:
    pytest.importorskip("lightning")
    assert load("lightning_module").main() > 0.9
